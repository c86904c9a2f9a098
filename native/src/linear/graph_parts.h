// Parts of a weighted graph with as few cut edges as can be, by METIS.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt {

// Part 0 .. num_parts - 1 of each vertex. begin (n + 1), neighbor: symmetric adjacency without the diagonal;
// vertex_weight (n) and edge_weight (one per neighbor) are positive. The same graph gives the same parts.
std::vector<std::int32_t> graph_parts(std::vector<std::int32_t> begin, std::vector<std::int32_t> neighbor,
                                      std::vector<std::int32_t> vertex_weight,
                                      std::vector<std::int32_t> edge_weight, int num_parts);

}  // namespace graphopt
