#include "linear/amalgamation.h"

#include <algorithm>
#include <cmath>

#include "linear/items.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr int kMostRanges = 512;   // of a tree
constexpr int kLeastNodes = 2000;  // of a range

double merge_gain(const FrontModel& model, const TreeNode& child, const TreeNode& node) {
  return model.cost(child.num_pivots, child.num_below) + model.cost(node.num_pivots, node.num_below) -
         model.cost(child.num_pivots + node.num_pivots, node.num_below);
}

// Runs of steps with the same rows below.
std::vector<TreeNode> fundamental_supernodes(const EliminationTree& tree,
                                             const std::vector<std::int32_t>& dims) {
  const int n = static_cast<int>(tree.perm.size());
  std::vector<TreeNode> nodes;
  std::vector<std::int32_t> node_of(n);
  for (int k = 0; k < n; ++k) {
    throw_if_stopped_at(k);
    const int dim = dims[tree.perm[k]];
    const bool extends = k > 0 && tree.parent[k - 1] == k &&
                         tree.row_count[k - 1] == tree.row_count[k] + dims[tree.perm[k - 1]];
    if (!extends) {
      TreeNode node;
      node.first_run = node.last_run = static_cast<std::int32_t>(nodes.size());
      node.first_step = k;
      nodes.push_back(node);
    }
    TreeNode& node = nodes.back();
    node_of[k] = static_cast<std::int32_t>(nodes.size()) - 1;
    ++node.num_steps;
    node.num_pivots += dim;
    node.num_below = tree.row_count[k] - dim;
  }
  for (std::size_t s = nodes.size(); s-- > 0;) {  // descending: the lists ascend
    const int parent_step = tree.parent[nodes[s].first_step + nodes[s].num_steps - 1];
    if (parent_step == -1) continue;
    TreeNode& parent = nodes[node_of[parent_step]];
    nodes[s].parent = node_of[parent_step];
    nodes[s].next_sibling = parent.first_child;
    parent.first_child = static_cast<std::int32_t>(s);
  }
  return nodes;
}

// Merges children into their parents. One object per thread: it keeps its memory.
class Merger {
 public:
  Merger(std::vector<TreeNode>& nodes, const FrontModel& model) : nodes_(nodes), model_(model) {}

  // Children of s while the estimated time shrinks. The explicit zeros this stores cost less than another
  // front.
  void merge_children(int s) {
    TreeNode& node = nodes_[s];
    candidates_.clear();
    for (int child = node.first_child; child != -1; child = nodes_[child].next_sibling)
      candidates_.emplace_back(-merge_gain(model_, nodes_[child], node), child);
    std::sort(candidates_.begin(), candidates_.end());
    remaining_.clear();
    const int own_first = node.first_run;
    int last = -1;  // run of the children merged so far
    for (const auto& candidate : candidates_) {
      TreeNode& child = nodes_[candidate.second];
      if (merge_gain(model_, child, node) <= 0.0) {
        remaining_.push_back(candidate.second);
        continue;
      }
      child.merged = true;
      node.num_pivots += child.num_pivots;
      (last == -1 ? node.first_run : nodes_[last].next_run) = child.first_run;
      last = child.last_run;
      for (int grandchild = child.first_child; grandchild != -1;
           grandchild = nodes_[grandchild].next_sibling) {
        nodes_[grandchild].parent = s;
        remaining_.push_back(grandchild);
      }
    }
    if (last == -1) return;
    nodes_[last].next_run = own_first;
    link_children(node);
  }

 private:
  void link_children(TreeNode& node) {
    std::sort(remaining_.begin(), remaining_.end());
    std::int32_t* link = &node.first_child;
    for (const std::int32_t child : remaining_) {
      *link = child;
      link = &nodes_[child].next_sibling;
    }
    *link = -1;
  }

  std::vector<TreeNode>& nodes_;
  const FrontModel& model_;
  std::vector<std::pair<double, std::int32_t>> candidates_;
  std::vector<std::int32_t> remaining_;
};

}  // namespace

double FrontModel::cost(double n, double m) const {
  const double flops = n * n * n / 3.0 + n * n * m + n * m * m;
  const double panels = n + m > small_rows ? per_panel * std::ceil(n / 32.0) : 0.0;
  return front + panels + per_pivot * n + per_update * m * m + per_entry * n * (n + 2.0 * m) +
         flops / flops_per_ns;
}

std::vector<TreeNode> assembly_tree(const EliminationTree& tree, const std::vector<std::int32_t>& dims,
                                    const FrontModel& model, bool one_node) {
  if (one_node) {
    TreeNode node;
    node.first_run = node.last_run = 0;
    node.num_steps = static_cast<std::int32_t>(tree.perm.size());
    for (const int block : tree.perm) node.num_pivots += dims[block];
    return std::vector<TreeNode>(tree.perm.empty() ? 0 : 1, node);
  }
  std::vector<TreeNode> nodes = fundamental_supernodes(tree, dims);
  std::vector<std::int32_t> parent(nodes.size());
  for (std::size_t s = 0; s < nodes.size(); ++s) parent[s] = nodes[s].parent;
  const Subtrees subtrees(parent);
  for_each_item(static_cast<int>(subtrees.ranges.size()), [&](int k) {
    Merger merger(nodes, model);
    for (int s = subtrees.ranges[k].first; s < subtrees.ranges[k].second; ++s) merger.merge_children(s);
  });
  Merger merger(nodes, model);
  for (const int s : subtrees.above) merger.merge_children(s);
  return nodes;
}

std::vector<std::int32_t> postorder(const std::vector<TreeNode>& nodes) {
  std::vector<std::int32_t> order, stack, next(nodes.size());
  order.reserve(nodes.size());
  for (std::size_t s = 0; s < nodes.size(); ++s) next[s] = nodes[s].first_child;
  for (std::size_t root = 0; root < nodes.size(); ++root) {
    if (nodes[root].merged || nodes[root].parent != -1) continue;
    stack.push_back(static_cast<std::int32_t>(root));
    while (!stack.empty()) {
      const int s = stack.back(), child = next[s];
      if (child == -1) {
        order.push_back(s);
        stack.pop_back();
      } else {
        next[s] = nodes[child].next_sibling;
        stack.push_back(child);
      }
    }
  }
  return order;
}

Subtrees::Subtrees(const std::vector<std::int32_t>& parent) {
  const int n = static_cast<int>(parent.size()), most = std::max(kLeastNodes, n / kMostRanges);
  std::vector<std::int32_t> size(n, 1);
  for (int s = 0; s < n; ++s) {
    if (parent[s] != -1) size[parent[s]] += size[s];
  }
  std::int32_t first = -1;  // of the range that is being collected, -1: none
  const auto close = [&](std::int32_t end) {
    if (first != -1) ranges.emplace_back(first, end);
    first = -1;
  };
  for (int s = 0; s < n; ++s) {
    if (size[s] > most) {
      close(s);
      above.push_back(s);
      continue;
    }
    const bool is_root = parent[s] == -1 || size[parent[s]] > most;
    if (!is_root) continue;  // its range begins with the first of its subtree
    const std::int32_t begin = s - size[s] + 1;
    if (first != -1 && s + 1 - first > most) close(begin);
    if (first == -1) first = begin;
  }
  close(n);
}

}  // namespace graphopt
