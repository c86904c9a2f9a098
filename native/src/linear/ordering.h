// Elimination orderings of a block graph, and what they cost.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "linear/block_pattern.h"

namespace graphopt {

// Symmetric adjacency of the blocks, without the diagonal, both directions.
struct BlockGraph {
  BlockGraph() = default;
  explicit BlockGraph(const BlockPattern& pattern);
  int size() const { return static_cast<int>(begin.size()) - 1; }

  std::vector<std::int32_t> begin{0};  // (nb + 1)
  std::vector<std::int32_t> neighbor;  // (2 * off-diagonal blocks)
  std::vector<std::int32_t> stored;    // the same: number of the block in the pattern
  std::vector<std::int32_t> weight;    // (nb) block dimensions
};

// Elimination tree in postorder: block perm[k] is eliminated at step k.
struct EliminationTree {
  std::vector<std::int32_t> perm;       // (nb) step -> block
  std::vector<std::int32_t> inverse;    // (nb) block -> step
  std::vector<std::int32_t> parent;     // (nb) step of the parent, -1 for a root
  std::vector<std::int64_t> row_count;  // (nb) scalar rows of L in the column, its own block included
  double flops = 0.0;                   // multiplications and additions of the factorisation
  double nonzeros = 0.0;                // scalar entries of L
};

// Tree, postorder and counts of an ordering (Gilbert, Ng and Peyton 1994, weighted by block dimensions).
EliminationTree eliminate(const BlockGraph& graph, const std::vector<std::int32_t>& order);

// What orderings are compared by.
struct FactorCosts {
  // Expected seconds of a factorisation.
  std::function<double(const EliminationTree& tree)> seconds = [](const auto& tree) {
    return tree.flops / 3e10;
  };
  // Part of a factorisation that dissection saves, on the average: beside two orders by minimum degree.
  double dissection_saves = 1.0 / 16.0;
  // METIS works beside minimum degree, on a thread of its own, which is in vain where minimum degree is good.
  bool orders_ahead = false;
  // Whether one dense front is faster than the best tree.
  std::function<bool(const EliminationTree& tree)> prefers_dense = [](const auto&) { return false; };
};

// name: auto, amd, metis, dissection (dissection.h), natural, dense (natural, for one front). On return the
// ordering that was taken.
EliminationTree order_blocks(const BlockGraph& graph, std::string& name, const FactorCosts& costs);

// METIS draws from the C library's generator, which it seeds itself: one call at a time.
std::mutex& metis_mutex();

}  // namespace graphopt
