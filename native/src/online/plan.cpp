// Order and cliques of vertices that are eliminated anew.
#include <algorithm>

#include "linear/amalgamation.h"
#include "linear/dissection.h"
#include "linear/ordering.h"
#include "linear/supernodes.h"
#include "online/tree.h"

namespace graphopt::online {

constexpr int kFewVertices = 12;  // that keep their order instead of a minimum degree one

Tree::Plan Tree::plan(const std::vector<std::int32_t>& vertices, const std::vector<std::int32_t>& orphans,
                      const std::vector<std::int32_t>& last, const std::vector<std::int32_t>& boundary) {
  const int inner = static_cast<int>(vertices.size()), n = inner + static_cast<int>(boundary.size());
  std::vector<std::int32_t> vertex(vertices);
  vertex.insert(vertex.end(), boundary.begin(), boundary.end());
  for (int i = 0; i < n; ++i) number_[static_cast<std::size_t>(vertex[static_cast<std::size_t>(i)])] = i;
  orphans_of_.resize(std::max(orphans_of_.size(), static_cast<std::size_t>(n)));
  for (const std::int32_t o : orphans)
    for (const std::int32_t v : cliques_[o].shape->separator)
      orphans_of_[static_cast<std::size_t>(number_[static_cast<std::size_t>(v)])].push_back(o);

  BlockGraph graph(BlockPattern({}, {0}, {}));  // empty, filled here
  graph.begin.reserve(static_cast<std::size_t>(n) + 1);
  std::vector<std::int32_t> seen(static_cast<std::size_t>(n), -1);
  for (int i = 0; i < n; ++i) {
    const std::int32_t v = vertex[static_cast<std::size_t>(i)];
    seen[static_cast<std::size_t>(i)] = i;
    const auto add = [&](std::int32_t w) {
      const std::int32_t j = number_[static_cast<std::size_t>(w)];
      if (j < 0 || seen[static_cast<std::size_t>(j)] == i) return;
      seen[static_cast<std::size_t>(j)] = i;
      graph.neighbor.push_back(j);
    };
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
      const std::int32_t e = problem_.entry_edge[entry];
      if (!problem_.is_active(e)) continue;
      const int arity = problem_.arity(e);
      const std::int32_t* const ends = problem_.vertices_of(e);
      bool is_inside = true, is_inner = boundary.empty();
      for (int s = 0; s < arity; ++s) {
        if (!problem_.is_free(ends[s])) continue;
        const std::int32_t j = number_[static_cast<std::size_t>(ends[s])];
        is_inside = is_inside && j >= 0;
        is_inner = is_inner || (j >= 0 && j < inner);
      }
      if (!is_inside || !is_inner) continue;
      for (int s = 0; s < arity; ++s)
        if (problem_.is_free(ends[s])) add(ends[s]);
    }
    for (const std::int32_t o : orphans_of_[static_cast<std::size_t>(i)])
      for (const std::int32_t w : cliques_[o].shape->separator) add(w);
    orphans_of_[static_cast<std::size_t>(i)].clear();
    graph.begin.push_back(static_cast<std::int32_t>(graph.neighbor.size()));
    graph.weight.push_back(problem_.dim(v));
  }

  Plan found;
  // order: minimum degree among those that may come anywhere, then `last`, then the boundary
  std::vector<char> is_late(static_cast<std::size_t>(n), 0);
  std::vector<std::int32_t> late, order;
  for (const std::int32_t v : last) {
    const std::int32_t i = number_[static_cast<std::size_t>(v)];
    if (i < 0 || is_late[static_cast<std::size_t>(i)]) continue;
    is_late[static_cast<std::size_t>(i)] = 1;
    late.push_back(i);
  }
  std::vector<std::int32_t> early, early_number(static_cast<std::size_t>(n), -1);
  for (int i = 0; i < inner; ++i) {
    if (is_late[static_cast<std::size_t>(i)]) continue;
    early_number[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(early.size());
    early.push_back(i);
  }
  if (static_cast<int>(early.size()) <= kFewVertices) {
    order = early;
  } else {
    found.is_minimum_degree = true;
    std::vector<std::int32_t> begin{0}, neighbor;
    for (const std::int32_t i : early) {
      for (std::int32_t p = graph.begin[static_cast<std::size_t>(i)];
           p < graph.begin[static_cast<std::size_t>(i) + 1]; ++p) {
        const std::int32_t j =
            early_number[static_cast<std::size_t>(graph.neighbor[static_cast<std::size_t>(p)])];
        if (j >= 0) neighbor.push_back(j);
      }
      begin.push_back(static_cast<std::int32_t>(neighbor.size()));
    }
    for (const std::int32_t k : minimum_degree(begin.data(), neighbor.data(), static_cast<int>(early.size())))
      order.push_back(early[static_cast<std::size_t>(k)]);
  }
  order.insert(order.end(), late.begin(), late.end());
  for (int i = inner; i < n; ++i) order.push_back(i);

  EliminationTree tree = graphopt::eliminate(graph, order);
  if (!boundary.empty()) {  // of the boundary only the rows count
    EliminationTree own;
    std::vector<std::int32_t> step(static_cast<std::size_t>(n), -1);
    for (int k = 0; k < n; ++k) {
      if (tree.perm[static_cast<std::size_t>(k)] >= inner) continue;
      step[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(own.perm.size());
      own.perm.push_back(tree.perm[static_cast<std::size_t>(k)]);
      own.row_count.push_back(tree.row_count[static_cast<std::size_t>(k)]);
      own.parent.push_back(tree.parent[static_cast<std::size_t>(k)]);
    }
    for (std::int32_t& parent : own.parent) parent = parent < 0 ? -1 : step[static_cast<std::size_t>(parent)];
    own.flops = tree.flops;
    tree = std::move(own);
  }
  const std::vector<TreeNode> nodes = assembly_tree(tree, graph.weight, kCoreModel, false);
  found.flops = tree.flops;
  const std::vector<std::int32_t> node_order = graphopt::postorder(nodes);
  std::vector<std::int32_t> position(static_cast<std::size_t>(n), n);  // of the boundary: behind all others
  std::vector<std::int32_t> number_of(nodes.size(), -1);
  for (const std::int32_t s : node_order) {
    number_of[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(found.nodes.size());
    Plan::Node node;
    node.first = static_cast<int>(found.order.size());
    for (std::int32_t run = nodes[static_cast<std::size_t>(s)].first_run; run != -1;
         run = nodes[static_cast<std::size_t>(run)].next_run) {
      const TreeNode& own = nodes[static_cast<std::size_t>(run)];
      for (std::int32_t k = own.first_step; k < own.first_step + own.num_steps; ++k) {
        const std::int32_t i = tree.perm[static_cast<std::size_t>(k)];
        position[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(found.order.size());
        found.order.push_back(vertex[static_cast<std::size_t>(i)]);
      }
    }
    node.count = static_cast<int>(found.order.size()) - node.first;
    node.parent = nodes[static_cast<std::size_t>(s)].parent;
    found.nodes.push_back(node);
  }
  for (int i = inner; i < n; ++i) position[static_cast<std::size_t>(i)] = i;
  std::vector<std::vector<std::int32_t>> below(found.nodes.size());  // numbers of vertices
  std::fill(seen.begin(), seen.end(), -1);
  std::vector<std::vector<int>> children(found.nodes.size());
  for (std::size_t k = 0; k < found.nodes.size(); ++k) {
    Plan::Node& node = found.nodes[k];
    if (node.parent >= 0) node.parent = number_of[static_cast<std::size_t>(node.parent)];
    if (node.parent >= 0) children[static_cast<std::size_t>(node.parent)].push_back(static_cast<int>(k));
    const int end = node.first + node.count;
    std::vector<std::int32_t>& own = below[k];
    const auto add = [&](std::int32_t j) {
      if (position[static_cast<std::size_t>(j)] < end ||
          seen[static_cast<std::size_t>(j)] == static_cast<int>(k))
        return;
      seen[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(k);
      own.push_back(j);
    };
    for (int p = node.first; p < end; ++p) {
      const auto i = static_cast<std::size_t>(
          number_[static_cast<std::size_t>(found.order[static_cast<std::size_t>(p)])]);
      for (std::int32_t q = graph.begin[i]; q < graph.begin[i + 1]; ++q)
        add(graph.neighbor[static_cast<std::size_t>(q)]);
    }
    for (const int child : children[k])
      for (const std::int32_t j : below[static_cast<std::size_t>(child)]) add(j);
    std::sort(own.begin(), own.end(), [&](std::int32_t a, std::int32_t b) {
      return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
    });
    auto shape = std::make_shared<Shape>();
    shape->frontals.assign(found.order.begin() + node.first, found.order.begin() + end);
    for (const std::int32_t j : own) shape->separator.push_back(vertex[static_cast<std::size_t>(j)]);
    for (const std::int32_t v : shape->frontals) shape->num_pivots += problem_.dim(v);
    for (const std::int32_t v : shape->separator) shape->num_below += problem_.dim(v);
    found.shapes.push_back(std::move(shape));
  }
  for (const std::int32_t v : vertex) number_[static_cast<std::size_t>(v)] = -1;
  return found;
}

}  // namespace graphopt::online
