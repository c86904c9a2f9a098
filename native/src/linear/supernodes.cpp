#include "linear/supernodes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "linear/errors.h"
#include "linear/strips.h"

namespace graphopt {
namespace {

// A node of the assembly tree while supernodes are merged.
struct Node {
  std::int32_t parent = -1;
  std::int64_t num_pivots = 0, num_below = 0;
  bool merged = false;
  std::vector<std::int32_t> steps;     // in elimination order
  std::vector<std::int32_t> children;  // ascending
};

double merge_gain(const FrontModel& model, const Node& child, const Node& node) {
  return model.cost(child.num_pivots, child.num_below) + model.cost(node.num_pivots, node.num_below) -
         model.cost(child.num_pivots + node.num_pivots, node.num_below);
}

std::vector<Node> fundamental_supernodes(const EliminationTree& tree, const std::vector<std::int32_t>& dims) {
  const int n = static_cast<int>(tree.perm.size());
  std::vector<Node> nodes;
  std::vector<std::int32_t> node_of(n);
  for (int k = 0; k < n; ++k) {
    const int dim = dims[tree.perm[k]];
    const bool extends = k > 0 && tree.parent[k - 1] == k &&
                         tree.row_count[k - 1] == tree.row_count[k] + dims[tree.perm[k - 1]];
    if (!extends) nodes.emplace_back();
    Node& node = nodes.back();
    node_of[k] = static_cast<std::int32_t>(nodes.size()) - 1;
    node.steps.push_back(k);
    node.num_pivots += dim;
    node.num_below = tree.row_count[k] - dim;
  }
  for (std::size_t s = 0; s < nodes.size(); ++s) {
    const int parent_step = tree.parent[nodes[s].steps.back()];
    if (parent_step == -1) continue;
    nodes[s].parent = node_of[parent_step];
    nodes[nodes[s].parent].children.push_back(static_cast<std::int32_t>(s));
  }
  return nodes;
}

// Everything in one dense front.
std::vector<Node> one_supernode(const EliminationTree& tree, const std::vector<std::int32_t>& dims) {
  std::vector<Node> nodes(tree.perm.empty() ? 0 : 1);
  for (std::size_t k = 0; k < tree.perm.size(); ++k) {
    nodes[0].steps.push_back(static_cast<std::int32_t>(k));
    nodes[0].num_pivots += dims[tree.perm[k]];
  }
  return nodes;
}

// Merge children into `nodes[s]` while the estimated time shrinks. The explicit zeros this stores cost less
// than another front.
void amalgamate(std::vector<Node>& nodes, int s, const FrontModel& model) {
  Node& node = nodes[s];
  std::vector<std::pair<double, std::int32_t>> candidates;
  for (int child : node.children) candidates.emplace_back(-merge_gain(model, nodes[child], node), child);
  std::stable_sort(candidates.begin(), candidates.end());
  std::vector<std::int32_t> remaining, steps;
  for (const auto& candidate : candidates) {
    Node& child = nodes[candidate.second];
    if (merge_gain(model, child, node) <= 0.0) {
      remaining.push_back(candidate.second);
      continue;
    }
    child.merged = true;
    node.num_pivots += child.num_pivots;
    steps.insert(steps.end(), child.steps.begin(), child.steps.end());
    for (int grandchild : child.children) {
      nodes[grandchild].parent = s;
      remaining.push_back(grandchild);
    }
    child.steps.clear();
    child.children.clear();
  }
  steps.insert(steps.end(), node.steps.begin(), node.steps.end());
  node.steps.swap(steps);
  std::sort(remaining.begin(), remaining.end());
  node.children.swap(remaining);
}

std::vector<std::int32_t> postorder_of(const std::vector<Node>& nodes) {
  std::vector<std::int32_t> order;
  std::vector<std::pair<std::int32_t, std::size_t>> stack;
  for (std::size_t root = 0; root < nodes.size(); ++root) {
    if (nodes[root].merged || nodes[root].parent != -1) continue;
    stack.emplace_back(static_cast<std::int32_t>(root), 0);
    while (!stack.empty()) {
      auto& [s, next] = stack.back();
      if (next == nodes[s].children.size()) {
        order.push_back(s);
        stack.pop_back();
      } else {
        const std::int32_t child = nodes[s].children[next++];
        stack.emplace_back(child, 0);
      }
    }
  }
  return order;
}

}  // namespace

double FrontModel::cost(double n, double m) const {
  const double flops = n * n * n / 3.0 + n * n * m + n * m * m;
  const double panels = n + m > small_rows ? per_panel * std::ceil(n / 32.0) : 0.0;
  return front + panels + per_pivot * n + per_update * m * m + per_entry * n * (n + 2.0 * m) +
         flops / flops_per_ns;
}

SymbolicFactor::SymbolicFactor(const BlockPattern& pattern, const std::string& ordering_name,
                               const FrontModel& model)
    : ordering(ordering_name) {
  const BlockGraph graph(pattern);
  const EliminationTree tree = order_blocks(graph, ordering);
  flops = tree.flops;
  nonzeros = tree.nonzeros;
  find_supernodes(tree, pattern.dims(), model);
  scalar_source.reserve(pattern.dim());
  for (int block : perm) {
    for (int i = 0; i < pattern.block_dim(block); ++i) {
      scalar_source.push_back(static_cast<std::int32_t>(pattern.offset(block) + i));
    }
  }
  find_rows(graph);
  place_blocks(pattern);
}

void SymbolicFactor::find_supernodes(const EliminationTree& tree, const std::vector<std::int32_t>& dims,
                                     const FrontModel& model) {
  std::vector<Node> nodes =
      ordering == "dense" ? one_supernode(tree, dims) : fundamental_supernodes(tree, dims);
  for (std::size_t s = 0; s < nodes.size(); ++s) amalgamate(nodes, static_cast<int>(s), model);
  const std::vector<std::int32_t> order = postorder_of(nodes);
  std::vector<std::int32_t> new_number(nodes.size(), -1);
  for (std::size_t k = 0; k < order.size(); ++k) new_number[order[k]] = static_cast<std::int32_t>(k);
  step_offset.push_back(0);
  children_begin.push_back(0);
  for (int old : order) {
    const Node& node = nodes[old];
    Supernode s{};
    s.first_step = static_cast<std::int32_t>(perm.size());
    s.num_steps = static_cast<std::int32_t>(node.steps.size());
    s.first_pivot = step_offset.back();
    s.num_pivots = static_cast<std::int32_t>(node.num_pivots);
    s.parent = node.parent == -1 ? -1 : new_number[node.parent];
    for (int step : node.steps) {
      perm.push_back(tree.perm[step]);
      step_offset.push_back(step_offset.back() + dims[tree.perm[step]]);
      supernode_of_step.push_back(static_cast<std::int32_t>(supernodes.size()));
    }
    for (int child : node.children) children.push_back(new_number[child]);
    children_begin.push_back(static_cast<std::int32_t>(children.size()));
    supernodes.push_back(s);
  }
  inverse.resize(perm.size());
  for (std::size_t k = 0; k < perm.size(); ++k) inverse[perm[k]] = static_cast<std::int32_t>(k);
}

void SymbolicFactor::find_rows(const BlockGraph& graph) {
  // Steps below each supernode: neighbours of its blocks and rows of its children.
  const int num = static_cast<int>(supernodes.size());
  std::vector<std::vector<std::int32_t>> row_steps(num);
  std::vector<std::int32_t> seen_by(perm.size(), -1);
  for (int s = 0; s < num; ++s) {
    Supernode& node = supernodes[s];
    const int end = node.first_step + node.num_steps;
    std::vector<std::int32_t>& steps = row_steps[s];
    const auto add = [&](int step) {
      if (step < end || seen_by[step] == s) return;
      seen_by[step] = s;
      steps.push_back(step);
    };
    for (int k = node.first_step; k < end; ++k) {
      for (int p = graph.begin[perm[k]]; p < graph.begin[perm[k] + 1]; ++p) add(inverse[graph.neighbor[p]]);
    }
    for (int c = children_begin[s]; c < children_begin[s + 1]; ++c) {
      for (int step : row_steps[children[c]]) add(step);
    }
    std::sort(steps.begin(), steps.end());
    node.rows_begin = static_cast<std::int64_t>(rows.size());
    for (int step : steps) {
      for (int i = step_offset[step]; i < step_offset[step + 1]; ++i) rows.push_back(i);
    }
    node.num_below = static_cast<std::int32_t>(rows.size() - node.rows_begin);
    node.diagonal = factor_size;
    node.below = node.diagonal + triangle_size(num_strips(node.num_pivots));
    factor_size = node.below + rectangle_size(node.num_below, node.num_pivots);
    factor_size = (factor_size + 7) / 8 * 8;
    node.cost = kCoreModel.cost(node.num_pivots, node.num_below);
  }
  std::vector<std::int32_t> front_row(scalar_source.size(), 0);
  parent_row.resize(rows.size());
  for (int s = 0; s < num; ++s) {
    if (children_begin[s] == children_begin[s + 1]) continue;
    const Supernode& node = supernodes[s];
    for (int i = 0; i < node.num_pivots; ++i) front_row[node.first_pivot + i] = i;
    for (int i = 0; i < node.num_below; ++i) front_row[rows[node.rows_begin + i]] = node.num_pivots + i;
    for (int c = children_begin[s]; c < children_begin[s + 1]; ++c) {
      const Supernode& child = supernodes[children[c]];
      for (int i = 0; i < child.num_below; ++i) {
        parent_row[child.rows_begin + i] = front_row[rows[child.rows_begin + i]];
      }
    }
  }
}

void SymbolicFactor::place_blocks(const BlockPattern& pattern) {
  const int num = static_cast<int>(supernodes.size());
  const auto owner = [&](int row, int col) {
    return supernode_of_step[std::min(inverse[row], inverse[col])];
  };
  blocks_begin.assign(num + 1, 0);
  for (int col = 0; col < pattern.num_blocks(); ++col) {
    if (pattern.block_dim(col) > std::numeric_limits<std::int16_t>::max()) {
      throw LinearShapeError("Block " + std::to_string(col) + " has dimension " +
                             std::to_string(pattern.block_dim(col)) + ", at most 32767 are supported.");
    }
    for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
      ++blocks_begin[owner(pattern.row(k), col) + 1];
    }
  }
  std::partial_sum(blocks_begin.begin(), blocks_begin.end(), blocks_begin.begin());
  blocks.resize(blocks_begin.back());
  std::vector<std::int64_t> fill(blocks_begin.begin(), blocks_begin.end() - 1);
  for (int col = 0; col < pattern.num_blocks(); ++col) {
    for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
      const int row = pattern.row(k);
      const Supernode& node = supernodes[owner(row, col)];
      const bool transposed = inverse[row] < inverse[col];
      const int row_block = transposed ? col : row, col_block = transposed ? row : col;
      const int row_scalar = step_offset[inverse[row_block]];
      AssemblyBlock block{};
      block.source = pattern.value_offset(k);
      block.col = step_offset[inverse[col_block]] - node.first_pivot;
      block.row = row_scalar - node.first_pivot;
      if (block.row >= node.num_pivots) {
        const auto begin = rows.begin() + node.rows_begin, end = begin + node.num_below;
        block.row =
            node.num_pivots + static_cast<std::int32_t>(std::lower_bound(begin, end, row_scalar) - begin);
      }
      block.num_rows = static_cast<std::int16_t>(pattern.block_dim(row_block));
      block.num_cols = static_cast<std::int16_t>(pattern.block_dim(col_block));
      block.transposed = transposed;
      blocks[fill[&node - supernodes.data()]++] = block;
    }
  }
}

std::vector<std::uint32_t> column_major_places(const SymbolicFactor& symbolic, const BlockPattern& pattern,
                                               const std::vector<std::int64_t>& offsets) {
  std::vector<std::uint32_t> places(static_cast<std::size_t>(pattern.values_size()), kNowhere);
  const int num = static_cast<int>(symbolic.supernodes.size());
  for (int s = 0; s < num; ++s) {
    const Supernode& node = symbolic.supernodes[s];
    const std::int64_t rows = node.num_pivots + node.num_below;
    for (std::int64_t k = symbolic.blocks_begin[s]; k < symbolic.blocks_begin[s + 1]; ++k) {
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
  }
  return places;
}

}  // namespace graphopt
