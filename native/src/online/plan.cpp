// Order and cliques of vertices that are eliminated anew.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "linear/amalgamation.h"
#include "linear/dissection.h"
#include "linear/ordering.h"
#include "linear/supernodes.h"
#include "online/tree.h"

namespace graphopt::online {

constexpr int kFewVertices = 12;    // that keep their order instead of a minimum degree one
constexpr double kKeptOrder = 1.2;  // operations of an order that is kept, over those of minimum degree

// Whether the edge joins vertices of the plan alone, and not only those of its boundary.
bool Tree::takes(const Plan& plan, std::int32_t e) const {
  const std::int32_t* const ends = problem_.vertices_of(e);
  bool is_inner = false;
  for (int s = problem_.arity(e); s-- > 0;) {
    if (!problem_.is_free(ends[s])) continue;
    const std::int32_t i = number_[static_cast<std::size_t>(ends[s])];
    if (i < 0) return false;
    is_inner = is_inner || i < plan.inner;
  }
  return is_inner;
}

// Graph of the vertices at `plan.vertex`: they are joined by those of the candidates that are edges of the
// plan, and by the separators of `orphans`.
BlockGraph Tree::graph_of(Plan& plan, const std::vector<std::int32_t>& candidates,
                          const std::vector<std::int32_t>& orphans) {
  const auto n = plan.vertex.size();
  orphans_of_.resize(std::max(orphans_of_.size(), n));
  for (const std::int32_t o : orphans)
    for (const std::int32_t v : cliques_[o].shape->separator)
      orphans_of_[static_cast<std::size_t>(number_[static_cast<std::size_t>(v)])].push_back(o);
  std::vector<std::int32_t> begin(n + 2, 0), of, seen(n, -1);
  const auto for_ends = [&](std::int32_t e, const auto& visit) {
    const std::int32_t* const ends = problem_.vertices_of(e);
    for (int s = problem_.arity(e); s-- > 0;)
      if (problem_.is_free(ends[s])) visit(number_[static_cast<std::size_t>(ends[s])]);
  };
  for (const std::int32_t e : candidates) {
    if (!takes(plan, e)) continue;
    plan.edges.push_back(e);
    for_ends(e, [&](std::int32_t i) { ++begin[static_cast<std::size_t>(i) + 2]; });
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  of.resize(static_cast<std::size_t>(begin.back()));
  for (const std::int32_t e : plan.edges)
    for_ends(e, [&](std::int32_t i) {
      of[static_cast<std::size_t>(begin[static_cast<std::size_t>(i) + 1]++)] = e;
    });
  BlockGraph graph;
  graph.begin.reserve(n + 1);
  for (std::size_t i = 0; i < n; ++i) {
    seen[i] = static_cast<std::int32_t>(i);
    const auto add = [&](std::int32_t j) {
      if (std::exchange(seen[static_cast<std::size_t>(j)], static_cast<std::int32_t>(i)) !=
          static_cast<std::int32_t>(i))
        graph.neighbor.push_back(j);
    };
    for (std::int32_t k = begin[i]; k < begin[i + 1]; ++k) for_ends(of[static_cast<std::size_t>(k)], add);
    for (const std::int32_t o : orphans_of_[i])
      for (const std::int32_t w : cliques_[o].shape->separator) add(number_[static_cast<std::size_t>(w)]);
    orphans_of_[i].clear();
    graph.begin.push_back(static_cast<std::int32_t>(graph.neighbor.size()));
    graph.weight.push_back(problem_.dim(plan.vertex[i]));
  }
  return graph;
}

// The order of elimination. Vertices keep theirs while that is not much more work than minimum degree: then
// the rows of what is below them do not change places, and few vertices are above those that change next.
EliminationTree Tree::order(Plan& plan, const BlockGraph& graph,
                            const std::vector<std::int32_t>& last) const {
  plan.is_minimum_degree = false;
  EliminationTree kept = graphopt::eliminate(graph, order_of(plan, graph, last));
  if (plan.inner - static_cast<int>(last.size()) <= kFewVertices) return kept;
  plan.is_minimum_degree = true;
  EliminationTree anew = graphopt::eliminate(graph, order_of(plan, graph, last));
  plan.is_minimum_degree = kept.flops > kKeptOrder * anew.flops;
  return plan.is_minimum_degree ? std::move(anew) : std::move(kept);
}

// Numbers of vertices: those that may come anywhere, as they are or by minimum degree, then `last`, then the
// boundary.
std::vector<std::int32_t> Tree::order_of(const Plan& plan, const BlockGraph& graph,
                                         const std::vector<std::int32_t>& last) const {
  const auto n = plan.vertex.size();
  std::vector<char> is_late(n, 0);
  std::vector<std::int32_t> late, order;
  for (const std::int32_t v : last) {
    const std::int32_t i = number_[static_cast<std::size_t>(v)];
    if (i < 0 || is_late[static_cast<std::size_t>(i)]) continue;
    is_late[static_cast<std::size_t>(i)] = 1;
    late.push_back(i);
  }
  std::vector<std::int32_t> early, early_number(n, -1);
  for (int i = 0; i < plan.inner; ++i) {
    if (is_late[static_cast<std::size_t>(i)]) continue;
    early_number[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(early.size());
    early.push_back(i);
  }
  if (!plan.is_minimum_degree) {
    order = early;
  } else {
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
  for (std::size_t i = static_cast<std::size_t>(plan.inner); i < n; ++i)
    order.push_back(static_cast<std::int32_t>(i));
  return order;
}

namespace {

// The tree without the steps of the boundary, of which only the rows count.
EliminationTree without_boundary(EliminationTree tree, int inner) {
  EliminationTree own;
  std::vector<std::int32_t> step(tree.perm.size(), -1);
  for (std::size_t k = 0; k < tree.perm.size(); ++k) {
    if (tree.perm[k] >= inner) continue;
    step[k] = static_cast<std::int32_t>(own.perm.size());
    own.perm.push_back(tree.perm[k]);
    own.row_count.push_back(tree.row_count[k]);
    own.parent.push_back(tree.parent[k]);
  }
  for (std::int32_t& parent : own.parent) parent = parent < 0 ? -1 : step[static_cast<std::size_t>(parent)];
  own.flops = tree.flops;
  return own;
}

}  // namespace

// Vertices by position and the nodes that they make up, children first.
void Tree::group(Plan& plan, const EliminationTree& tree, const std::vector<std::int32_t>& weights) const {
  const std::vector<TreeNode> nodes = assembly_tree(tree, weights, kCoreModel, false);
  plan.flops = tree.flops;
  std::vector<std::int32_t> number_of(nodes.size(), -1);
  for (const std::int32_t s : graphopt::postorder(nodes)) {
    number_of[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(plan.nodes.size());
    Plan::Node node;
    node.first = static_cast<int>(plan.order.size());
    for (std::int32_t run = nodes[static_cast<std::size_t>(s)].first_run; run != -1;
         run = nodes[static_cast<std::size_t>(run)].next_run) {
      const TreeNode& own = nodes[static_cast<std::size_t>(run)];
      for (std::int32_t k = own.first_step; k < own.first_step + own.num_steps; ++k)
        plan.order.push_back(plan.vertex[static_cast<std::size_t>(tree.perm[static_cast<std::size_t>(k)])]);
    }
    node.count = static_cast<int>(plan.order.size()) - node.first;
    node.parent = nodes[static_cast<std::size_t>(s)].parent;
    plan.nodes.push_back(node);
  }
  for (Plan::Node& node : plan.nodes)
    if (node.parent >= 0) node.parent = number_of[static_cast<std::size_t>(node.parent)];
}

// Frontals and separators of the nodes.
void Tree::shape(Plan& plan, const BlockGraph& graph) const {
  const auto n = plan.vertex.size();
  std::vector<std::int32_t> position(n), seen(n, -1);  // of the boundary: behind all others
  for (std::size_t i = static_cast<std::size_t>(plan.inner); i < n; ++i)
    position[i] = static_cast<std::int32_t>(i);
  const auto number = [&](std::size_t p) {
    return static_cast<std::size_t>(number_[static_cast<std::size_t>(plan.order[p])]);
  };
  for (std::size_t p = 0; p < plan.order.size(); ++p) position[number(p)] = static_cast<std::int32_t>(p);
  std::vector<std::vector<std::int32_t>> below(plan.nodes.size());  // numbers of vertices
  std::vector<std::shared_ptr<Shape>> shapes;
  for (std::size_t k = 0; k < plan.nodes.size(); ++k) {
    const Plan::Node& node = plan.nodes[k];
    const int end = node.first + node.count;
    std::vector<std::int32_t>& own = below[k];  // its children have put theirs in
    std::vector<std::int32_t> candidates = std::move(own);
    for (int p = node.first; p < end; ++p) {
      const std::size_t i = number(static_cast<std::size_t>(p));
      candidates.insert(candidates.end(), graph.neighbor.begin() + graph.begin[i],
                        graph.neighbor.begin() + graph.begin[i + 1]);
    }
    own.clear();
    for (const std::int32_t j : candidates) {
      if (position[static_cast<std::size_t>(j)] < end ||
          seen[static_cast<std::size_t>(j)] == static_cast<int>(k))
        continue;
      seen[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(k);
      own.push_back(j);
    }
    std::sort(own.begin(), own.end(), [&](std::int32_t a, std::int32_t b) {
      return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
    });
    if (node.parent >= 0) {
      std::vector<std::int32_t>& above = below[static_cast<std::size_t>(node.parent)];
      above.insert(above.end(), own.begin(), own.end());
    }
    auto shape = std::make_shared<Shape>();
    shape->frontals.assign(plan.order.begin() + node.first, plan.order.begin() + end);
    for (const std::int32_t j : own) shape->separator.push_back(plan.vertex[static_cast<std::size_t>(j)]);
    for (const std::int32_t v : shape->frontals) shape->num_pivots += problem_.dim(v);
    for (const std::int32_t v : shape->separator) shape->num_below += problem_.dim(v);
    shapes.push_back(std::move(shape));
  }
  give_edges(plan, position, shapes);
  plan.shapes.assign(shapes.begin(), shapes.end());
}

// Each edge to the shape that has its first vertex; position: of numbers.
void Tree::give_edges(const Plan& plan, const std::vector<std::int32_t>& position,
                      const std::vector<std::shared_ptr<Shape>>& shapes) const {
  std::vector<std::int32_t> node_of(plan.order.size());  // by position
  for (std::size_t k = 0; k < plan.nodes.size(); ++k)
    std::fill_n(node_of.begin() + plan.nodes[k].first, plan.nodes[k].count, static_cast<std::int32_t>(k));
  for (const std::int32_t e : plan.edges) {
    std::int32_t first = std::numeric_limits<std::int32_t>::max();
    const std::int32_t* const ends = problem_.vertices_of(e);
    for (int s = problem_.arity(e); s-- > 0;)
      if (problem_.is_free(ends[s]))
        first =
            std::min(first, position[static_cast<std::size_t>(number_[static_cast<std::size_t>(ends[s])])]);
    shapes[static_cast<std::size_t>(node_of[static_cast<std::size_t>(first)])]->edges.push_back(e);
  }
}

// Of what `plan` has in `vertex` and `inner`: its order, nodes, edges and shapes.
void Tree::plan(Plan& plan, const std::vector<std::int32_t>& candidates,
                const std::vector<std::int32_t>& orphans, const std::vector<std::int32_t>& last) {
  const bool has_boundary = plan.inner < static_cast<int>(plan.vertex.size());
  for (std::size_t i = 0; i < plan.vertex.size(); ++i)
    number_[static_cast<std::size_t>(plan.vertex[i])] = static_cast<std::int32_t>(i);
  const BlockGraph graph = graph_of(plan, candidates, orphans);
  EliminationTree tree = order(plan, graph, last);
  if (has_boundary) tree = without_boundary(std::move(tree), plan.inner);
  group(plan, tree, graph.weight);
  shape(plan, graph);
  for (const std::int32_t v : plan.vertex) number_[static_cast<std::size_t>(v)] = -1;
}

}  // namespace graphopt::online
