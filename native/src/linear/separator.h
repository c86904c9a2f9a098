// Vertex separators of weighted graphs.
//
// The graph is coarsened, the coarsest one is cut from several starts, and the separator is refined on every
// graph on the way back by moving its vertices to one side or the other (Fiduccia and Mattheyses 1982, on
// vertices as in Ashcraft and Liu 1998; multilevel: Karypis and Kumar 1998).
#pragma once

#include <cstdint>
#include <vector>

#include "linear/weighted_graph.h"

namespace graphopt {

constexpr std::int8_t kSeparator = 2;

struct Split {
  std::vector<std::int8_t> side;        // (n) 0, 1 or kSeparator: no edge joins 0 and 1
  std::int64_t weight[3] = {0, 0, 0};   // of the two sides and the separator
  std::vector<std::int32_t> separator;  // its vertices
};

// Both sides of at most 0.6 of the weight where that can be had. The same graph gives the same split.
Split split_in_two(const WeightedGraph& graph, const ChunkLoop& loop);

}  // namespace graphopt
