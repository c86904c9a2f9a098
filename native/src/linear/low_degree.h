// Blocks of few neighbours, which any good ordering eliminates early: what is left is ordered by other means.
//
// A block of at most three neighbours leaves no more edges than it had. In each round an independent set of
// them is eliminated, so that a chain of n blocks has log2(n) levels and not n.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/ordering.h"

namespace graphopt {

struct LowDegree {
  explicit LowDegree(const BlockGraph& graph);

  // Order of all blocks: the early ones, then the rest in the order of their vertices.
  std::vector<std::int32_t> followed_by(const std::vector<std::int32_t>& vertices) const;

  std::vector<std::int32_t> early;  // blocks, in the order of their elimination
  std::vector<std::int32_t> block;  // of the vertices of the rest
  BlockGraph rest;                  // of the Schur complement of the early ones

 private:
  class Lists;
  void set_rest(const BlockGraph& graph, const Lists& lists);
};

}  // namespace graphopt
