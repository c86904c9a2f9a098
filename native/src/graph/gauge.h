// Which vertex of a graph that nothing holds g2o would fix: used by Python and by the C library.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt {

// Positions in `ids` (distinct, in order of insertion) in the order in which libstdc++ iterates over a
// std::unordered_map<int, ...> with these keys that grew one element at a time, as g2o's `findGauge` does.
//
// The table is one linked list. Inserting an id whose bucket is empty puts it at the list's front; else it
// goes before the first element of its bucket. Growing to more buckets inserts the whole list again, in its
// order. Bucket counts start at 13 and grow to the first entry of a table of primes that is at least twice as
// large.
std::vector<std::int64_t> iteration_order(const std::int64_t* ids, std::int64_t count);

// (num_parts,) per connected part the first vertex, in this order, of the part's largest dimension; -1 where
// the part is held. order (count,): numbers of the vertices; part (count,) of each vertex, -1: of none; dims
// (count,): tangent dimensions; is_held (num_parts,).
std::vector<std::int64_t> gauge_of_parts(const std::int64_t* order, const std::int64_t* part,
                                         const std::int64_t* dims, std::int64_t count, const bool* is_held,
                                         std::int64_t num_parts);

}  // namespace graphopt
