// Supernodes: neighbouring steps of the elimination whose columns have the same rows, merged further while
// that is expected to save time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "linear/ordering.h"

namespace graphopt {

// What fronts cost: supernodes are merged while the sum shrinks. Nanoseconds.
struct FrontModel {
  double front, per_pivot;       // a front, a pivot
  double per_update, per_entry;  // an entry of the square of the rows below, of the pivots' columns
  double flops_per_ns;           // arithmetic
  double per_panel;              // 32 pivots of a front of more than small_rows rows
  std::int32_t small_rows;
  double cost(double num_pivots, double num_below) const;
};

// A node of the assembly tree. Lists are chained: -1 ends them.
struct TreeNode {
  std::int32_t parent = -1;
  std::int32_t first_child = -1, next_sibling = -1;  // ascending
  std::int32_t first_run, last_run;                  // runs of steps, in elimination order
  std::int32_t next_run = -1;                        // of the run that has this node's number
  std::int32_t first_step = 0, num_steps = 0;        // that run
  bool merged = false;                               // into its parent: no longer a node
  std::int64_t num_pivots = 0, num_below = 0;        // scalars
};

// Nodes in postorder. dims: of the blocks; one_node: everything in one.
std::vector<TreeNode> assembly_tree(const EliminationTree& tree, const std::vector<std::int32_t>& dims,
                                    const FrontModel& model, bool one_node);

// The nodes that are left, children before parents.
std::vector<std::int32_t> postorder(const std::vector<TreeNode>& nodes);

// A tree in postorder as ranges of whole subtrees, which are independent, and the nodes above them.
struct Subtrees {
  // parent (n); the cut depends on it alone.
  explicit Subtrees(const std::vector<std::int32_t>& parent);

  std::vector<std::pair<std::int32_t, std::int32_t>> ranges;  // first, last + 1
  std::vector<std::int32_t> above;                            // ascending
};

}  // namespace graphopt
