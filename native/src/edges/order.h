// Edges in the order of one of their vertices.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plain_array.h"

namespace graphopt::edges {

struct Order {
  PlainArray<std::uint32_t> first;  // edges first[d] .. first[d + 1] have key keys[d]
  PlainArray<std::int64_t> keys;    // those that occur, ascending
};

// Stable order of edges by key: edge i has key table[rows[i * stride]], below num_keys; edges with a negative
// key come last. Writes (num_edges,) to `order`. Linear time, on all threads; the answer does not depend on
// their number. At most 2^32 - 2 edges and keys.
Order sort_by_key(const std::int32_t* rows, int stride, std::int64_t num_edges, const std::int64_t* table,
                  std::int64_t num_keys, std::uint32_t* order);

// Blocks of one pair of slots: of edge k at k * num_pairs + pair, negative: none. left_out: edges without.
struct PairPlaces {
  const std::int64_t* offset = nullptr;
  const bool *transposed = nullptr, *left_out = nullptr;
  int num_pairs = 0, pair = 0;
};

constexpr std::uint32_t kTransposed = std::uint32_t{1} << 31;

// Places 0 .. num_edges - 1 by the offset of their block, then ascending: those first[b] .. first[b + 1] have
// the block at offset[b]. The largest bit of a place says that its edge has the transposed block.
struct PairOrder {
  PlainArray<std::uint32_t> first, edges, offset;
};

// order: edge of each place. Offsets are below 2^32 - 2.
PairOrder sort_pairs(const PairPlaces& places, const std::uint32_t* order, std::int64_t num_edges);

// Of ascending values, at[k]: the first place in ascending numbers that is not below values[k].
void places_in(const std::int64_t* numbers, std::int64_t size, const std::uint32_t* values,
               std::int64_t num_values, std::int64_t* at);

// As `sort_by_key` of one slot, edges with the same key by their row in another slot, below num_others.
void sort_by_ends(const std::int32_t* rows, int arity, int slot, int other, std::int64_t num_edges,
                  const std::int64_t* table, std::int64_t num_keys, std::int64_t num_others,
                  std::uint32_t* order);

// Segments of numbers, those first[s] .. first[s + 1], in another order, and what follows the last one after
// them. chosen: each segment once.
struct Segments {
  PlainArray<std::uint32_t> first, numbers;
};
Segments take_segments(const std::uint32_t* first, const std::int64_t* chosen, std::int64_t num_segments,
                       const std::uint32_t* numbers, std::int64_t size);

// place[order[i]] = i; order: a permutation of 0 .. size - 1.
void invert_order(const std::uint32_t* order, std::int64_t size, std::uint32_t* place);

// (num_rows,) keys by which rows of one slot that have common neighbours in another one follow each other:
// lowest times num_others plus highest of the rows of their edges' other ends, so below num_others^2; rows
// without edges come last, with num_others^2. order, first: edges by the vertex in the slot, as in `Order`.
struct Neighbours {
  const std::int32_t* rows = nullptr;  // (m, arity)
  int arity = 0, slot = 0, other = 0;
  const std::uint32_t *order = nullptr, *first = nullptr;
  std::int64_t num_destinations = 0, num_others = 0;
};
void neighbour_keys(const Neighbours& edges, std::int64_t num_rows, std::int64_t* keys);

// rows (m, arity) with place[row] for the rows of one slot.
void renumber_rows(const std::int32_t* rows, std::int64_t num_edges, int arity, int slot,
                   const std::uint32_t* place, std::int32_t* out);

// First destination of each tile of destinations begin .. end: runs of whole ones with at most `most` edges,
// or one with more. first: as in `Order`.
std::vector<std::uint32_t> tile_starts(const std::uint32_t* first, std::int64_t begin, std::int64_t end,
                                       std::int64_t most);

}  // namespace graphopt::edges
