// A row of weighted things cut into pieces of equal weight, without sorting all of it.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::edges {

// Piece of each of some things in the order of their keys (those alike: by number): the whole weight is cut
// into `num_pieces` equal ones, and a thing is where its middle is. Keys are in [0, width).
std::vector<std::uint16_t> cut_in_order(const std::vector<double>& key, double width,
                                        const std::vector<std::int64_t>& weight, int num_pieces);

}  // namespace graphopt::edges
