#include "online/tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linear/amalgamation.h"
#include "linear/dissection.h"
#include "linear/extend_add.h"
#include "linear/ordering.h"
#include "linear/supernodes.h"

namespace graphopt::online {

// A pivot this small beside the diagonal of H is rounding: the direction has no information.
constexpr double kLeastPivot = 1e-13;
constexpr int kFewVertices = 12;  // that keep their order instead of a minimum degree one

Numbers::Numbers(int num_pivots, int num_below) : num_pivots_(num_pivots), num_below_(num_below) {
  below_ = triangle_size(num_strips(num_pivots));
  update_ = below_ + rectangle_size(num_below, num_pivots);
  memory_ = KeptMemory::instance().take(update_ + triangle_size(num_strips(num_below)));
}

Front Numbers::front() const {
  return Front{num_pivots_, num_below_, diagonal(), below(), update(), nullptr};
}

Tree::Tree(Journal& journal, Problem& problem)
    : journal_(journal),
      problem_(problem),
      cliques_(journal),
      parent_(journal),
      children_(journal),
      places_(journal),
      clique_of_(journal),
      position_of_(journal),
      next_position_(journal),
      num_cliques_(journal),
      scale_(journal) {
  next_position_.push_back(0);
  num_cliques_.push_back(0);
}

std::int32_t Tree::new_clique() {
  const auto c = static_cast<std::int32_t>(places_.take(1));
  if (cliques_.size() <= c) {
    cliques_.push_back({});
    parent_.push_back(-1);
    children_.push_back({});
  }
  mark_.resize(static_cast<std::size_t>(cliques_.size()), 0);
  num_cliques_.set(0, num_cliques_[0] + 1);
  return c;
}

void Tree::require_scalars() {
  clique_of_.grow(problem_.num_places(), -1);
  position_of_.grow(problem_.num_places(), 0);
  const std::int64_t scalars = problem_.gradient.size();
  scale_.grow(scalars, 0.0);
  number_.resize(static_cast<std::size_t>(problem_.num_places()), -1);
  local_.resize(static_cast<std::size_t>(problem_.num_places()), -1);
  y_.resize(static_cast<std::size_t>(scalars), 0.0);
  dx_.resize(static_cast<std::size_t>(scalars), 0.0);
  mark_.resize(static_cast<std::size_t>(cliques_.size()), 0);
}

std::int32_t Tree::owner(std::int32_t e) const {
  std::int32_t first = -1;
  const std::int32_t* const vertices = problem_.vertices_of(e);
  for (int s = problem_.arity(e); s-- > 0;) {
    const std::int32_t v = vertices[s];
    if (problem_.is_free(v) && (first == -1 || position_of_[v] < position_of_[first])) first = v;
  }
  return first;
}

// ---------------------------------------------------------------------- structure

void Tree::collect(const std::vector<std::int32_t>& touched) {
  affected_.clear();
  vertices_.clear();
  orphans_.clear();
  for (const std::int32_t v : touched) {
    for (std::int32_t c = clique_of_[v]; c != -1 && !mark_[static_cast<std::size_t>(c)]; c = parent_[c]) {
      mark_[static_cast<std::size_t>(c)] = 1;
      affected_.push_back(c);
    }
  }
  std::sort(affected_.begin(), affected_.end(), [&](std::int32_t a, std::int32_t b) {
    return position_of_[cliques_[a].shape->frontals[0]] < position_of_[cliques_[b].shape->frontals[0]];
  });
  for (const std::int32_t c : affected_) {
    for (const std::int32_t v : cliques_[c].shape->frontals)
      if (problem_.is_free(v)) vertices_.push_back(v);
    for (const std::int32_t child : children_[c])
      if (!mark_[static_cast<std::size_t>(child)]) orphans_.push_back(child);
  }
  for (const std::int32_t c : affected_) mark_[static_cast<std::size_t>(c)] = 0;
  for (const std::int32_t v : touched) {
    if (!problem_.is_free(v) || clique_of_[v] != -1 || number_[static_cast<std::size_t>(v)] == -2) continue;
    number_[static_cast<std::size_t>(v)] = -2;  // a new one, once
    vertices_.push_back(v);
  }
  for (const std::int32_t v : touched) number_[static_cast<std::size_t>(v)] = -1;
}

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
  Plan found;
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

EliminationCounts Tree::eliminate(const std::vector<std::int32_t>& touched,
                                  const std::vector<std::int32_t>& last) {
  require_scalars();
  collect(touched);
  EliminationCounts counts;
  const Plan plan = this->plan(vertices_, orphans_, last, {});
  for (const std::int32_t c : affected_) {
    for (const std::int32_t v : cliques_[c].shape->frontals) clique_of_.set(v, -1);
    cliques_.set(c, {});
    children_.set(c, {});
    parent_.set(c, -1);
    places_.give_back(c);
    num_cliques_.set(0, num_cliques_[0] - 1);
  }
  std::vector<Job> jobs(plan.nodes.size());
  std::vector<std::vector<std::int32_t>> children(plan.nodes.size());
  for (std::size_t k = 0; k < plan.nodes.size(); ++k) {
    Job& job = jobs[k];
    job.clique = new_clique();
    job.shape = plan.shapes[k];
    for (const std::int32_t v : job.shape->frontals) {
      clique_of_.set(v, job.clique);
      position_of_.set(v, next_position_[0]);
      next_position_.set(0, next_position_[0] + 1);
    }
  }
  std::vector<std::int32_t> job_of(static_cast<std::size_t>(cliques_.size()), -1);
  for (std::size_t k = 0; k < jobs.size(); ++k)
    job_of[static_cast<std::size_t>(jobs[k].clique)] = static_cast<std::int32_t>(k);
  for (const std::int32_t o : orphans_) {
    std::int32_t first = -1;
    for (const std::int32_t v : cliques_[o].shape->separator)
      if (first == -1 || position_of_[v] < position_of_[first]) first = v;
    const std::int32_t parent = clique_of_[first];
    parent_.set(o, parent);
    children[static_cast<std::size_t>(job_of[static_cast<std::size_t>(parent)])].push_back(o);
  }
  for (std::size_t k = 0; k < plan.nodes.size(); ++k) {
    if (plan.nodes[k].parent < 0) continue;
    const auto parent = static_cast<std::size_t>(plan.nodes[k].parent);
    parent_.set(jobs[k].clique, jobs[parent].clique);
    children[parent].push_back(jobs[k].clique);
  }
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    children_.set(jobs[k].clique, std::move(children[k]));
    find_edges(jobs[k]);
  }
  counts.ordered = static_cast<int>(vertices_.size()) > kFewVertices;
  counts.vertices = static_cast<std::int64_t>(vertices_.size());
  counts.flops = plan.flops;
  evaluate(jobs, counts);
  for (Job& job : jobs) {
    for (const std::int32_t child : children_[job.clique]) job.children.push_back(&cliques_[child]);
    compute(job);
    finish(job);
  }
  counts.cliques = static_cast<std::int64_t>(jobs.size());
  return counts;
}

EliminationCounts Tree::refresh(const std::vector<std::int32_t>& edges) {
  require_scalars();
  std::vector<std::int32_t> touched;
  for (const std::int32_t e : edges) {
    const std::int32_t v = owner(e);
    if (v >= 0) touched.push_back(v);
  }
  collect(touched);
  EliminationCounts counts;
  std::vector<Job> jobs(affected_.size());
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    jobs[k].clique = affected_[k];
    jobs[k].shape = cliques_[affected_[k]].shape;
    counts.vertices += static_cast<std::int64_t>(jobs[k].shape->frontals.size());
    find_edges(jobs[k]);
  }
  evaluate(jobs, counts);
  for (Job& job : jobs) {
    for (const std::int32_t child : children_[job.clique]) job.children.push_back(&cliques_[child]);
    compute(job);
    finish(job);
  }
  counts.cliques = static_cast<std::int64_t>(jobs.size());
  return counts;
}

// ---------------------------------------------------------------------- numbers

void Tree::find_edges(Job& job) const {
  for (const std::int32_t v : job.shape->frontals) {
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
      const std::int32_t e = problem_.entry_edge[entry];
      if (!problem_.is_active(e)) continue;
      if (owner(e) == v) job.edges.push_back(e);
    }
  }
}

void Tree::evaluate(std::vector<Job>& jobs, EliminationCounts& counts) {
  const std::size_t num_kinds = problem_.edge_kinds.size();
  std::vector<std::vector<std::int32_t>> edges(num_kinds);
  outputs_.resize(num_kinds);
  prior_outputs_.clear();
  std::size_t num_priors = 0;
  for (const Job& job : jobs) {
    for (const std::int32_t e : job.edges) {
      if (problem_.edge_kind[e] < 0) {
        ++num_priors;
      } else {
        edges[static_cast<std::size_t>(problem_.edge_kind[e])].push_back(e);
      }
    }
    counts.edges += static_cast<std::int64_t>(job.edges.size());
  }
  prior_outputs_.reserve(num_priors);
  for (std::size_t k = 0; k < num_kinds; ++k) {
    if (edges[k].empty()) continue;
    const auto size = edges[k].size() * static_cast<std::size_t>(problem_.stride(static_cast<int>(k)));
    if (outputs_[k].size() < size) outputs_[k].resize(size);
    problem_.linearize(static_cast<int>(k), edges[k].data(), static_cast<std::int64_t>(edges[k].size()),
                       outputs_[k].data());
  }
  std::vector<std::size_t> next(num_kinds, 0);
  for (Job& job : jobs) {
    job.shares.reserve(job.edges.size());
    for (const std::int32_t e : job.edges) {
      if (problem_.edge_kind[e] < 0) {
        std::vector<double> H, b;
        problem_.linearize_prior(*problem_.priors[problem_.edge_row[e]], H, b);
        prior_outputs_.push_back(std::move(H));
        job.shares.push_back({e, prior_outputs_.back().data()});
      } else {
        const auto k = static_cast<std::size_t>(problem_.edge_kind[e]);
        job.shares.push_back({e, outputs_[k].data() + next[k]++ * static_cast<std::size_t>(
                                                                      problem_.stride(static_cast<int>(k)))});
      }
      if (problem_.flags[e] & kStale) {
        problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] & ~kStale));
        problem_.count(Problem::kStaleEdges, -1);
      }
    }
  }
}

namespace {

// Element (row, col) of a front, row >= col.
inline double& element(const Front& front, int row, int col) {
  const int n = front.num_pivots;
  if (col >= n) return front.update[triangle_row(row - n) + static_cast<std::int64_t>(col - n) * kStrip];
  if (row < n) return front.diagonal[triangle_row(row) + static_cast<std::int64_t>(col) * kStrip];
  return front.below[rectangle_row(row - n, n) + static_cast<std::int64_t>(col) * kStrip];
}

}  // namespace

// Blocks of the job's edges: those that touch pivots, or those of the separator alone.
void Tree::assemble(const Job& job, bool into_update) {
  const Front front = job.numbers->front();
  const int n = front.num_pivots;
  for (const Share& share : job.shares) {
    const std::int32_t e = share.edge;
    const int arity = problem_.arity(e);
    const std::int32_t* const ends = problem_.vertices_of(e);
    if (problem_.edge_kind[e] < 0) {
      const Prior& prior = *problem_.priors[problem_.edge_row[e]];
      const int m = prior.first.back();
      for (int a = 0; a < arity; ++a)
        for (int b = 0; b < arity; ++b) {
          const int ra = local_[static_cast<std::size_t>(ends[a])],
                    rb = local_[static_cast<std::size_t>(ends[b])];
          if (ra < rb || rb < 0 || (rb >= n) != into_update) continue;
          for (int j = prior.first[static_cast<std::size_t>(b)];
               j < prior.first[static_cast<std::size_t>(b) + 1]; ++j)
            for (int i = prior.first[static_cast<std::size_t>(a)];
                 i < prior.first[static_cast<std::size_t>(a) + 1]; ++i) {
              const int row = ra + i - prior.first[static_cast<std::size_t>(a)],
                        col = rb + j - prior.first[static_cast<std::size_t>(b)];
              if (row < col) continue;
              const double value = share.outputs[static_cast<std::size_t>(j) * static_cast<std::size_t>(m) +
                                                 static_cast<std::size_t>(i)];
              element(front, row, col) += value;
              if (row == col) gross_[static_cast<std::size_t>(row)] += value;
            }
        }
      continue;
    }
    const EdgeKind& kind = problem_.kind_of(e);
    const double* block = share.outputs + 1;
    for (int a = 0; a < arity; ++a) {
      const int da = kind.dims[static_cast<std::size_t>(a)];
      const int ra = problem_.is_free(ends[a]) ? local_[static_cast<std::size_t>(ends[a])] : -1;
      if (ra >= 0 && (ra >= n) == into_update) {
        for (int j = 0; j < da; ++j)
          for (int i = 0; i <= j; ++i) element(front, ra + j, ra + i) += block[j * (j + 1) / 2 + i];
        for (int j = 0; j < da; ++j) gross_[static_cast<std::size_t>(ra + j)] += block[j * (j + 1) / 2 + j];
      }
      block += da * (da + 1) / 2;
      for (int b = a + 1; b < arity; ++b) {
        const int db = kind.dims[static_cast<std::size_t>(b)];
        const int rb = problem_.is_free(ends[b]) ? local_[static_cast<std::size_t>(ends[b])] : -1;
        if (ra >= 0 && rb >= 0 && (std::min(ra, rb) >= n) == into_update) {
          for (int j = 0; j < db; ++j)
            for (int i = 0; i < da; ++i)
              element(front, std::max(ra + i, rb + j), std::min(ra + i, rb + j)) += block[j * da + i];
        }
        block += da * db;
      }
    }
  }
}

void Tree::add_children(const Job& job, bool into_update) {
  const Front front = job.numbers->front();
  const int n = front.num_pivots;
  for (const Clique* child : job.children) {
    const int size = child->shape->num_below;
    row_.resize(static_cast<std::size_t>(size) + kStrip);
    position_.resize(static_cast<std::size_t>(size) + kStrip);
    bool ascends = true;
    int k = 0;
    for (const std::int32_t v : child->shape->separator) {
      const int dim = problem_.dim(v);
      for (int i = 0; i < dim; ++i, ++k) {
        row_[static_cast<std::size_t>(k)] = local_[static_cast<std::size_t>(v)] + i;
        ascends =
            ascends && (k == 0 || row_[static_cast<std::size_t>(k)] > row_[static_cast<std::size_t>(k) - 1]);
      }
    }
    const Numbers& numbers = *child->numbers;
    if (!into_update)
      for (int i = 0; i < size; ++i)
        gross_[static_cast<std::size_t>(row_[static_cast<std::size_t>(i)])] +=
            numbers.gross[static_cast<std::size_t>(i)];
    if (ascends) {
      ChildColumns columns;
      columns.m = size;
      const auto split =
          static_cast<int>(std::lower_bound(row_.begin(), row_.begin() + size, n) - row_.begin());
      columns.first = into_update ? split : 0;
      columns.last = into_update ? size : split;
      if (columns.first == columns.last) continue;
      const std::int64_t below = front.below - front.diagonal;
      for (int i = columns.first; i < size; ++i) {
        const int row = row_[static_cast<std::size_t>(i)];
        position_[static_cast<std::size_t>(i)] = into_update ? triangle_row(row - n)
                                                 : row < n   ? triangle_row(row)
                                                             : below + rectangle_row(row - n, n);
      }
      columns.source = numbers.update();
      columns.row = row_.data();
      columns.position = position_.data();
      columns.target = into_update ? front.update : front.diagonal;
      columns.shift = into_update ? n : 0;
      add_child(columns);
      continue;
    }
    for (int i = 0; i < size; ++i) {
      const double* const values = numbers.update() + triangle_row(i);
      const int ri = row_[static_cast<std::size_t>(i)];
      for (int j = 0; j <= i; ++j) {
        const int rj = row_[static_cast<std::size_t>(j)], low = std::min(ri, rj);
        if ((low >= n) == into_update)
          element(front, std::max(ri, rj), low) += values[static_cast<std::int64_t>(j) * kStrip];
      }
    }
  }
}

void Tree::clear_local(const Shape& shape) {
  for (const std::int32_t v : shape.frontals) local_[static_cast<std::size_t>(v)] = -1;
  for (const std::int32_t v : shape.separator) local_[static_cast<std::size_t>(v)] = -1;
}

void Tree::compute(Job& job) {
  const Shape& shape = *job.shape;
  const int n = shape.num_pivots, m = shape.num_below;
  job.numbers = std::make_shared<Numbers>(n, m);
  int row = 0;
  for (const auto* vertices : {&shape.frontals, &shape.separator})
    for (const std::int32_t v : *vertices) {
      local_[static_cast<std::size_t>(v)] = row;
      row += problem_.dim(v);
    }
  gross_.assign(static_cast<std::size_t>(n + m), 0.0);
  const Front front = job.numbers->front();
  std::fill(front.diagonal, front.below + rectangle_size(m, n), 0.0);
  assemble(job, false);
  add_children(job, false);
  // what the separator gets is added after the factorization, but its diagonal counts already
  min_pivot_.resize(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    min_pivot_[static_cast<std::size_t>(i)] = kLeastPivot * gross_[static_cast<std::size_t>(i)];
  int failed = -1;
  const int pivot = factor_front(front, min_pivot_.data(), Team{}, &failed);
  if (pivot >= 0) {
    clear_local(shape);
    throw Singular{unsupported(job, pivot)};
  }
  assemble(job, true);
  add_children(job, true);
  job.numbers->gross.assign(gross_.begin() + n, gross_.end());
  clear_local(shape);
}

void Tree::finish(const Job& job) {
  const Front front = job.numbers->front();
  int row = 0;
  for (const std::int32_t v : job.shape->frontals)
    for (int i = 0; i < problem_.dim(v); ++i, ++row)
      scale_.set(problem_.offset[v] + i,
                 front.diagonal[triangle_row(row) + static_cast<std::int64_t>(row) * kStrip]);
  cliques_.set(job.clique, {job.shape, job.numbers});
}

// Vertices that the direction moves along which this pivot has no information: L' x = 0 with x = 1 there.
std::vector<std::int32_t> Tree::unsupported(const Job& job, int pivot) const {
  const Front front = job.numbers->front();
  std::vector<double> x(static_cast<std::size_t>(problem_.gradient.size()), 0.0),
      own(static_cast<std::size_t>(pivot) + 1, 0.0);
  const auto lower = [&](int r, int c) {
    return front.diagonal[triangle_row(r) + static_cast<std::int64_t>(c) * kStrip];
  };
  own[static_cast<std::size_t>(pivot)] = 1.0;
  for (int c = pivot; c-- > 0;) {
    double sum = 0.0;
    for (int r = c + 1; r <= pivot; ++r) sum += lower(r, c) * own[static_cast<std::size_t>(r)];
    own[static_cast<std::size_t>(c)] = -sum * lower(c, c);
  }
  std::vector<std::int32_t> found;
  const auto take = [&](std::int32_t v, const double* values) {
    bool moves = false;
    for (int i = 0; i < problem_.dim(v); ++i) {
      x[static_cast<std::size_t>(problem_.offset[v] + i)] = values[i];
      moves = moves || std::abs(values[i]) > 1e-6;
    }
    if (moves) found.push_back(v);
  };
  own.resize(static_cast<std::size_t>(front.num_pivots), 0.0);
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    take(v, own.data() + first);
    first += problem_.dim(v);
  }
  // the subtrees below follow
  std::vector<const Clique*> stack(job.children.begin(), job.children.end());
  std::vector<double> z, y;
  while (!stack.empty() && found.size() < 10000) {
    const Clique& clique = *stack.back();
    stack.pop_back();
    z.assign(static_cast<std::size_t>(num_strips(clique.shape->num_below)) * kStrip + kStrip, 0.0);
    y.assign(static_cast<std::size_t>(clique.shape->num_pivots), 0.0);
    bool moves = false;
    int k = 0;
    for (const std::int32_t v : clique.shape->separator)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        z[static_cast<std::size_t>(k)] = x[static_cast<std::size_t>(problem_.offset[v] + i)];
        moves = moves || z[static_cast<std::size_t>(k)] != 0.0;
      }
    if (!moves) continue;
    vm::AlignedVector<double> aligned(z.begin(), z.end());
    backward_front(clique.numbers->front(), y.data(), aligned.data());
    int at = 0;
    for (const std::int32_t v : clique.shape->frontals) {
      take(v, y.data() + at);
      at += problem_.dim(v);
    }
    for (const std::int32_t child : children_[clique_of_[clique.shape->frontals[0]]])
      stack.push_back(&cliques_[child]);
  }
  return found;
}

// ---------------------------------------------------------------------- solutions

// The cliques and all above them, children first.
std::vector<std::int32_t> Tree::path_to_root(const std::vector<std::int32_t>& cliques) {
  std::vector<std::int32_t> path;
  for (const std::int32_t first : cliques)
    for (std::int32_t c = first; c != -1 && !mark_[static_cast<std::size_t>(c)]; c = parent_[c]) {
      mark_[static_cast<std::size_t>(c)] = 1;
      path.push_back(c);
    }
  for (const std::int32_t c : path) mark_[static_cast<std::size_t>(c)] = 0;
  std::sort(path.begin(), path.end(), [&](std::int32_t a, std::int32_t b) {
    return position_of_[cliques_[a].shape->frontals[0]] < position_of_[cliques_[b].shape->frontals[0]];
  });
  return path;
}

void Tree::forward_path(const std::vector<std::int32_t>& path, double* gain) {
  for (const std::int32_t c : path) {
    const Shape& shape = *cliques_[c].shape;
    buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
    padded_.resize(std::max(padded_.size(), static_cast<std::size_t>(num_strips(shape.num_below) * kStrip)));
    int k = 0;
    for (const std::int32_t v : shape.frontals)
      for (int i = 0; i < problem_.dim(v); ++i)
        buffer_[static_cast<std::size_t>(k++)] = y_[static_cast<std::size_t>(problem_.offset[v] + i)];
    forward_front(front_of(c), buffer_.data(), padded_.data());
    k = 0;
    for (const std::int32_t v : shape.frontals)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        y_[static_cast<std::size_t>(problem_.offset[v] + i)] = buffer_[static_cast<std::size_t>(k)];
        *gain += buffer_[static_cast<std::size_t>(k)] * buffer_[static_cast<std::size_t>(k)];
      }
    k = 0;
    for (const std::int32_t v : shape.separator)
      for (int i = 0; i < problem_.dim(v); ++i)
        y_[static_cast<std::size_t>(problem_.offset[v] + i)] -= padded_[static_cast<std::size_t>(k++)];
  }
}

double Tree::forward(const std::vector<std::int32_t>& active, const double* b) {
  require_scalars();
  for (const std::int32_t c : path_)  // of a pass that was not used
    if (cliques_[c].shape)
      for (const std::int32_t v : cliques_[c].shape->frontals)
        std::fill_n(y_.begin() + problem_.offset[v], problem_.dim(v), 0.0);
  std::vector<std::int32_t> cliques;
  for (const std::int32_t v : active) {
    cliques.push_back(clique_of_[v]);
    for (int i = 0; i < problem_.dim(v); ++i)
      y_[static_cast<std::size_t>(problem_.offset[v] + i)] = b[problem_.offset[v] + i];
  }
  path_ = path_to_root(cliques);
  double gain = 0.0;
  forward_path(path_, &gain);
  return gain;
}

Tree::Step Tree::backward(double threshold) {
  for (const std::int32_t v : stepped_) std::fill_n(dx_.begin() + problem_.offset[v], problem_.dim(v), 0.0);
  stepped_.clear();
  Step step;
  std::vector<std::int32_t> stack;
  for (const std::int32_t c : path_) {
    mark_[static_cast<std::size_t>(c)] = 1;
    if (parent_[c] == -1) stack.push_back(c);
  }
  while (!stack.empty()) {
    const std::int32_t c = stack.back();
    stack.pop_back();
    const Shape& shape = *cliques_[c].shape;
    buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
    const auto room = static_cast<std::size_t>(num_strips(shape.num_below) * kStrip);
    padded_.resize(std::max(padded_.size(), room));
    bool moves = mark_[static_cast<std::size_t>(c)] != 0;
    std::size_t k = 0;
    for (const std::int32_t v : shape.separator)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        padded_[k] = dx_[static_cast<std::size_t>(problem_.offset[v] + i)];
        moves = moves || padded_[k] != 0.0;
      }
    if (!moves) continue;
    std::fill(padded_.begin() + static_cast<std::ptrdiff_t>(k),
              padded_.begin() + static_cast<std::ptrdiff_t>(room), 0.0);
    k = 0;
    for (const std::int32_t v : shape.frontals)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        double& y = y_[static_cast<std::size_t>(problem_.offset[v] + i)];
        buffer_[k] = y;
        y = 0.0;
      }
    backward_front(front_of(c), buffer_.data(), padded_.data());
    ++step.cliques;
    double energy = 0.0;
    k = 0;
    for (const std::int32_t v : shape.frontals)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        const double weighted = buffer_[k] / scale_[problem_.offset[v] + i];
        energy += weighted * weighted;
      }
    const bool is_path = mark_[static_cast<std::size_t>(c)] != 0;
    if (!(energy > threshold)) {
      if (!is_path) continue;
    } else {
      k = 0;
      for (const std::int32_t v : shape.frontals) {
        for (int i = 0; i < problem_.dim(v); ++i, ++k)
          dx_[static_cast<std::size_t>(problem_.offset[v] + i)] = buffer_[k];
        stepped_.push_back(v);
      }
    }
    for (const std::int32_t child : children_[c]) stack.push_back(child);
  }
  for (const std::int32_t c : path_) mark_[static_cast<std::size_t>(c)] = 0;
  path_.clear();
  step.vertices = stepped_;
  return step;
}

void Tree::inverse_columns(std::int32_t v, const std::vector<std::int32_t>& of, double* out) {
  require_scalars();
  forward({}, nullptr);  // clears what is left of the last one
  const std::vector<std::int32_t> up = path_to_root({clique_of_[v]});
  std::vector<std::int32_t> cliques;
  std::int64_t rows = 0;
  for (const std::int32_t w : of) {
    cliques.push_back(clique_of_[w]);
    rows += problem_.dim(w);
  }
  const std::vector<std::int32_t> down = path_to_root(cliques);
  x_.resize(y_.size(), 0.0);
  double gain = 0.0;
  for (int column = 0; column < problem_.dim(v); ++column) {
    y_[static_cast<std::size_t>(problem_.offset[v] + column)] = 1.0;
    forward_path(up, &gain);
    for (auto c = down.rbegin(); c != down.rend(); ++c) {
      const Shape& shape = *cliques_[*c].shape;
      buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
      const auto room = static_cast<std::size_t>(num_strips(shape.num_below) * kStrip);
      padded_.resize(std::max(padded_.size(), room));
      std::size_t k = 0;
      for (const std::int32_t w : shape.separator)
        for (int i = 0; i < problem_.dim(w); ++i)
          padded_[k++] = x_[static_cast<std::size_t>(problem_.offset[w] + i)];
      std::fill(padded_.begin() + static_cast<std::ptrdiff_t>(k),
                padded_.begin() + static_cast<std::ptrdiff_t>(room), 0.0);
      k = 0;
      for (const std::int32_t w : shape.frontals)
        for (int i = 0; i < problem_.dim(w); ++i)
          buffer_[k++] = y_[static_cast<std::size_t>(problem_.offset[w] + i)];
      backward_front(front_of(*c), buffer_.data(), padded_.data());
      k = 0;
      for (const std::int32_t w : shape.frontals)
        for (int i = 0; i < problem_.dim(w); ++i)
          x_[static_cast<std::size_t>(problem_.offset[w] + i)] = buffer_[k++];
    }
    double* target = out + column * rows;
    for (const std::int32_t w : of)
      for (int i = 0; i < problem_.dim(w); ++i)
        *target++ = x_[static_cast<std::size_t>(problem_.offset[w] + i)];
    for (const std::int32_t c : up)
      for (const std::int32_t w : cliques_[c].shape->frontals)
        std::fill_n(y_.begin() + problem_.offset[w], problem_.dim(w), 0.0);
  }
}

std::int64_t Tree::bytes() const {
  std::int64_t total = 0;
  for (std::int64_t c = 0; c < cliques_.size(); ++c)
    if (cliques_[c].numbers) total += cliques_[c].numbers->bytes();
  return total;
}

double Tree::nonzeros() const {
  double total = 0.0;
  for (std::int64_t c = 0; c < cliques_.size(); ++c)
    if (cliques_[c].shape) {
      const double n = cliques_[c].shape->num_pivots, m = cliques_[c].shape->num_below;
      total += n * (n + 1) / 2 + n * m;
    }
  return total;
}

}  // namespace graphopt::online
