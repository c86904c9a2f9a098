#include "linear/supernodes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "linear/errors.h"
#include "linear/items.h"
#include "linear/strips.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr int kItem = 1 << 12;  // supernodes or blocks of one item of a parallel loop

// body(first, last) for ranges of 0 .. n on all threads.
template <class Body>
void for_each_range(std::int64_t n, const Body& body) {
  const std::int64_t items = (n + kItem - 1) / kItem;
  for_each_item(static_cast<int>(items), [&](int item) {
    const std::int64_t first = static_cast<std::int64_t>(item) * kItem;
    body(static_cast<int>(first), static_cast<int>(std::min(n, first + kItem)));
  });
}

void check_dims(const BlockPattern& pattern) {
  for (int block = 0; block < pattern.num_blocks(); ++block) {
    if (pattern.block_dim(block) <= std::numeric_limits<std::int16_t>::max()) continue;
    throw LinearShapeError("Block " + std::to_string(block) + " has dimension " +
                           std::to_string(pattern.block_dim(block)) + ", at most 32767 are supported.");
  }
}

}  // namespace

SymbolicFactor::SymbolicFactor(const BlockPattern& pattern, const std::string& ordering_name,
                               const FrontModel& model, const FactorCosts& costs)
    : ordering(ordering_name) {
  check_dims(pattern);
  const BlockGraph graph(pattern);
  throw_if_stopped();
  analyse(pattern, graph, order_blocks(graph, ordering, costs), model);
}

SymbolicFactor::SymbolicFactor(const BlockPattern& pattern, const SymbolicFactor& other,
                               const FrontModel& model)
    : ordering(other.ordering) {
  check_dims(pattern);
  if (static_cast<std::size_t>(pattern.num_blocks()) != other.perm.size())
    throw LinearShapeError("The pattern has " + std::to_string(pattern.num_blocks()) +
                           " blocks, the other factor has " + std::to_string(other.perm.size()) + ".");
  const BlockGraph graph(pattern);
  throw_if_stopped();
  analyse(pattern, graph, eliminate(graph, other.perm), model);
}

void SymbolicFactor::analyse(const BlockPattern& pattern, const BlockGraph& graph,
                             const EliminationTree& tree, const FrontModel& model) {
  throw_if_stopped();
  flops = tree.flops;
  nonzeros = tree.nonzeros;
  find_supernodes(tree, pattern.dims(), model);
  throw_if_stopped();
  scalar_source.resize(pattern.dim());
  for_each_range(pattern.num_blocks(), [&](int first, int last) {
    for (int k = first; k < last; ++k) {
      std::iota(scalar_source.begin() + step_offset[k], scalar_source.begin() + step_offset[k + 1],
                static_cast<std::int32_t>(pattern.offset(perm[k])));
    }
  });
  find_rows(graph);
  place_blocks(pattern, graph);
}

void SymbolicFactor::find_supernodes(const EliminationTree& tree, const std::vector<std::int32_t>& dims,
                                     const FrontModel& model) {
  const std::vector<TreeNode> nodes = assembly_tree(tree, dims, model, ordering == "dense");
  throw_if_stopped();
  const std::vector<std::int32_t> order = postorder(nodes);
  std::vector<std::int32_t> new_number(nodes.size(), -1);
  for (std::size_t k = 0; k < order.size(); ++k) new_number[order[k]] = static_cast<std::int32_t>(k);
  perm.reserve(dims.size());
  step_offset.reserve(dims.size() + 1);
  supernode_of_step.reserve(dims.size());
  supernodes.reserve(order.size());
  step_offset.push_back(0);
  children_begin.push_back(0);
  for (int old : order) {
    throw_if_stopped_at(static_cast<std::int64_t>(supernodes.size()));
    const TreeNode& node = nodes[old];
    Supernode s{};
    s.first_step = static_cast<std::int32_t>(perm.size());
    s.first_pivot = step_offset.back();
    s.num_pivots = static_cast<std::int32_t>(node.num_pivots);
    s.parent = node.parent == -1 ? -1 : new_number[node.parent];
    for (int run = node.first_run; run != -1; run = nodes[run].next_run) {
      for (int step = nodes[run].first_step; step < nodes[run].first_step + nodes[run].num_steps; ++step) {
        perm.push_back(tree.perm[step]);
        step_offset.push_back(step_offset.back() + dims[tree.perm[step]]);
        supernode_of_step.push_back(static_cast<std::int32_t>(supernodes.size()));
      }
    }
    s.num_steps = static_cast<std::int32_t>(perm.size()) - s.first_step;
    for (int child = node.first_child; child != -1; child = nodes[child].next_sibling)
      children.push_back(new_number[child]);
    children_begin.push_back(static_cast<std::int32_t>(children.size()));
    supernodes.push_back(s);
  }
  inverse.resize(perm.size());
  for (std::size_t k = 0; k < perm.size(); ++k) inverse[perm[k]] = static_cast<std::int32_t>(k);
}

namespace {

// Steps below each supernode: neighbours of its blocks and rows of its children. One object per thread.
class RowFinder {
 public:
  RowFinder(const SymbolicFactor& symbolic, const BlockGraph& graph,
            std::vector<std::vector<std::int32_t>>& row_steps)
      : symbolic_(symbolic), graph_(graph), row_steps_(row_steps), seen_by_(symbolic.perm.size(), -1) {}

  void find(int s) {
    const Supernode& node = symbolic_.supernodes[s];
    const int end = node.first_step + node.num_steps;
    found_.clear();
    const auto add = [&](int step) {
      if (step < end || seen_by_[step] == s) return;
      seen_by_[step] = s;
      found_.push_back(step);
    };
    for (int k = node.first_step; k < end; ++k) {
      const int block = symbolic_.perm[k];
      for (int p = graph_.begin[block]; p < graph_.begin[block + 1]; ++p)
        add(symbolic_.inverse[graph_.neighbor[p]]);
    }
    for (int c = symbolic_.children_begin[s]; c < symbolic_.children_begin[s + 1]; ++c) {
      for (int step : row_steps_[symbolic_.children[c]]) add(step);
    }
    std::sort(found_.begin(), found_.end());
    row_steps_[s] = found_;
  }

 private:
  const SymbolicFactor& symbolic_;
  const BlockGraph& graph_;
  std::vector<std::vector<std::int32_t>>& row_steps_;
  std::vector<std::int32_t> seen_by_, found_;
};

std::vector<std::vector<std::int32_t>> find_row_steps(const SymbolicFactor& symbolic,
                                                      const BlockGraph& graph) {
  std::vector<std::vector<std::int32_t>> row_steps(symbolic.supernodes.size());
  std::vector<std::int32_t> parent(symbolic.supernodes.size());
  for (std::size_t s = 0; s < parent.size(); ++s) parent[s] = symbolic.supernodes[s].parent;
  const Subtrees subtrees(parent);
  for_each_item_with(
      static_cast<int>(subtrees.ranges.size()), [&] { return RowFinder(symbolic, graph, row_steps); },
      [&](int k, RowFinder& finder) {
        for (int s = subtrees.ranges[k].first; s < subtrees.ranges[k].second; ++s) finder.find(s);
      });
  RowFinder finder(symbolic, graph, row_steps);
  for (const int s : subtrees.above) finder.find(s);
  return row_steps;
}

}  // namespace

void SymbolicFactor::find_rows(const BlockGraph& graph) {
  const std::vector<std::vector<std::int32_t>> row_steps = find_row_steps(*this, graph);
  std::int64_t num_rows = 0;
  for (std::size_t s = 0; s < supernodes.size(); ++s) {
    Supernode& node = supernodes[s];
    node.rows_begin = num_rows;
    node.num_below = 0;
    for (int step : row_steps[s]) node.num_below += step_offset[step + 1] - step_offset[step];
    num_rows += node.num_below;
    node.diagonal = factor_size;
    node.below = node.diagonal + triangle_size(num_strips(node.num_pivots));
    factor_size = node.below + rectangle_size(node.num_below, node.num_pivots);
    factor_size = (factor_size + 7) / 8 * 8;
    node.cost = kCoreModel.cost(node.num_pivots, node.num_below);
  }
  rows.resize(num_rows);
  for_each_range(static_cast<std::int64_t>(supernodes.size()), [&](int first, int last) {
    for (int s = first; s < last; ++s) {
      auto target = rows.begin() + supernodes[s].rows_begin;
      for (int step : row_steps[s]) {
        const int dim = step_offset[step + 1] - step_offset[step];
        std::iota(target, target + dim, step_offset[step]);
        target += dim;
      }
    }
  });
  place_in_parents(row_steps);
}

// Rows of each supernode as rows of its parent's front. Both lists ascend.
void SymbolicFactor::place_in_parents(const std::vector<std::vector<std::int32_t>>& row_steps) {
  parent_row.resize(rows.size());
  for_each_range(static_cast<std::int64_t>(supernodes.size()), [&](int first, int last) {
    for (int s = first; s < last; ++s) {
      if (supernodes[s].parent == -1) continue;
      const Supernode& parent = supernodes[supernodes[s].parent];
      const auto begin = rows.begin() + parent.rows_begin, end = begin + parent.num_below;
      auto above = begin;
      auto target = parent_row.begin() + supernodes[s].rows_begin;
      for (int step : row_steps[s]) {
        std::int32_t row = step_offset[step] - parent.first_pivot;
        if (row >= parent.num_pivots) {
          above = std::lower_bound(above, end, step_offset[step]);
          row = parent.num_pivots + static_cast<std::int32_t>(above - begin);
        }
        const int dim = step_offset[step + 1] - step_offset[step];
        std::iota(target, target + dim, row);
        target += dim;
      }
    }
  });
}

// Stored block k = (row, col) in the front of `node`, which owns it.
AssemblyBlock SymbolicFactor::placed(const BlockPattern& pattern, const Supernode& node, std::int64_t k,
                                     int row, int col) const {
  const bool transposed = inverse[row] < inverse[col];
  const int row_block = transposed ? col : row, col_block = transposed ? row : col;
  const int row_scalar = step_offset[inverse[row_block]];
  AssemblyBlock block{};
  block.source = pattern.value_offset(k);
  block.col = step_offset[inverse[col_block]] - node.first_pivot;
  block.row = row_scalar - node.first_pivot;
  if (block.row >= node.num_pivots) {
    const auto begin = rows.begin() + node.rows_begin, end = begin + node.num_below;
    block.row = node.num_pivots + static_cast<std::int32_t>(std::lower_bound(begin, end, row_scalar) - begin);
  }
  block.num_rows = static_cast<std::int16_t>(pattern.block_dim(row_block));
  block.num_cols = static_cast<std::int16_t>(pattern.block_dim(col_block));
  block.transposed = transposed;
  return block;
}

void SymbolicFactor::place_blocks(const BlockPattern& pattern, const BlockGraph& graph) {
  const int num = static_cast<int>(supernodes.size());
  blocks_begin.assign(num + 1, 0);
  for_each_range(num, [&](int first, int last) {
    for (int s = first; s < last; ++s) {
      const int begin = supernodes[s].first_step, end = begin + supernodes[s].num_steps;
      blocks_begin[s + 1] = supernodes[s].num_steps;
      for (int step = begin; step < end; ++step) {
        for (int p = graph.begin[perm[step]]; p < graph.begin[perm[step] + 1]; ++p)
          blocks_begin[s + 1] += inverse[graph.neighbor[p]] > step;
      }
    }
  });
  std::partial_sum(blocks_begin.begin(), blocks_begin.end(), blocks_begin.begin());
  blocks.resize(blocks_begin.back());
  for_each_range(num, [&](int first, int last) {
    for (int s = first; s < last; ++s) {
      const Supernode& node = supernodes[s];
      std::int64_t fill = blocks_begin[s];
      for (int step = node.first_step; step < node.first_step + node.num_steps; ++step) {
        const int own = perm[step];
        blocks[fill++] = placed(pattern, node, pattern.diagonal(own), own, own);
        for (int p = graph.begin[own]; p < graph.begin[own + 1]; ++p) {
          const int other = graph.neighbor[p];
          if (inverse[other] < step) continue;
          blocks[fill++] = placed(pattern, node, graph.stored[p], std::min(own, other), std::max(own, other));
        }
      }
    }
  });
}

void column_major_places(const SymbolicFactor& symbolic, const BlockPattern& pattern,
                         const std::vector<std::int64_t>& offsets, std::uint32_t* places) {
  for_each_range(pattern.values_size() / kItem + 1, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t size = pattern.values_size();
    std::fill(places + std::min(first * kItem, size), places + std::min(last * kItem, size), kNowhere);
  });
  const auto& begin = symbolic.blocks_begin;
  for_each_range(
      static_cast<std::int64_t>(symbolic.blocks.size()), [&](std::int64_t first, std::int64_t last) {
        std::size_t s = std::upper_bound(begin.begin(), begin.end(), first) - begin.begin() - 1;
        for (std::int64_t k = first; k < last; ++k) {
          while (k >= begin[s + 1]) ++s;
          const Supernode& node = symbolic.supernodes[s];
          const std::int64_t rows = node.num_pivots + node.num_below;
          const AssemblyBlock& block = symbolic.blocks[k];
          const int row_step = block.transposed ? block.num_cols : 1;
          const int col_step = block.transposed ? 1 : block.num_rows;
          for (int c = 0; c < block.num_cols; ++c) {
            const std::int64_t column = offsets[s] + (block.col + c) * rows + block.row;
            for (int r = std::max(0, block.col + c - block.row); r < block.num_rows; ++r) {
              places[block.source + r * row_step + c * col_step] = static_cast<std::uint32_t>(column + r);
            }
          }
        }
      });
}

}  // namespace graphopt
