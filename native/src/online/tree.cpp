#include "online/tree.h"

#include <algorithm>

namespace graphopt::online {

Numbers::Numbers(int num_pivots, int num_below) : num_pivots_(num_pivots), num_below_(num_below) {
  below_ = triangle_size(num_strips(num_pivots));
  update_ = below_ + rectangle_size(num_below, num_pivots);
  memory_ = KeptMemory::instance().take(update_ + triangle_size(num_strips(num_below)));
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
      y_(journal),
      energy_(journal),
      total_energy_(journal) {
  total_energy_.push_back(0.0);
  next_position_.push_back(0);
  num_cliques_.push_back(0);
}

std::int32_t Tree::new_clique() {
  const auto c = static_cast<std::int32_t>(places_.take(1));
  if (cliques_.size() <= c) {
    cliques_.push_back({});
    parent_.push_back(-1);
    children_.push_back({});
    energy_.push_back(0.0);
  }
  mark_.resize(static_cast<std::size_t>(cliques_.size()), 0);
  num_cliques_.set(0, num_cliques_[0] + 1);
  return c;
}

void Tree::require_scalars() {
  clique_of_.grow(problem_.num_places(), -1);
  position_of_.grow(problem_.num_places(), 0);
  const std::int64_t scalars = problem_.pending.size();
  y_.grow(scalars, 0.0);
  number_.resize(static_cast<std::size_t>(problem_.num_places()), -1);
  require_scratch(1);
  x_.resize(static_cast<std::size_t>(scalars), 0.0);
  rhs_.resize(static_cast<std::size_t>(scalars), 0.0);
  dx_.resize(static_cast<std::size_t>(scalars), 0.0);
  mark_.resize(static_cast<std::size_t>(cliques_.size()), 0);
}

void Tree::forget_marks() {
  std::fill(mark_.begin(), mark_.end(), 0);
  std::fill(edge_mark_.begin(), edge_mark_.end(), 0);
  std::fill(job_of_.begin(), job_of_.end(), -1);
  std::fill(number_.begin(), number_.end(), -1);
  for (Scratch& own : scratch_) std::fill(own.local.begin(), own.local.end(), -1);
  for (std::vector<std::int32_t>& orphans : orphans_of_) orphans.clear();
  std::fill(rhs_.begin(), rhs_.end(), 0.0);
  rhs_vertices_.clear();
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

// Active edges of vertices, and those that cliques have; each once.
std::vector<std::int32_t> Tree::edges_of(const std::vector<std::int32_t>& vertices,
                                         const std::vector<std::int32_t>& cliques) {
  edge_mark_.resize(static_cast<std::size_t>(problem_.edge_kind.size()), 0);
  std::vector<std::int32_t> found;
  const auto take = [&](std::int32_t e) {
    if (!problem_.is_active(e) || edge_mark_[static_cast<std::size_t>(e)]) return;
    edge_mark_[static_cast<std::size_t>(e)] = 1;
    found.push_back(e);
  };
  for (const std::int32_t c : cliques)
    for (const std::int32_t e : cliques_[c].shape->edges) take(e);
  for (const std::int32_t v : vertices)
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry])
      take(problem_.entry_edge[entry]);
  for (const std::int32_t e : found) edge_mark_[static_cast<std::size_t>(e)] = 0;
  return found;
}

// Children as they are, or as another job makes them.
void Tree::add_children_to(Job& job, const std::vector<std::int32_t>& children,
                           const std::vector<Clique>& fresh) const {
  for (const std::int32_t child : children) {
    const std::int32_t own = job_of_[static_cast<std::size_t>(child)];
    job.children.push_back(own < 0 ? &cliques_[child] : &fresh[static_cast<std::size_t>(own)]);
  }
}

EliminationCounts Tree::eliminate(const std::vector<std::int32_t>& touched,
                                  const std::vector<std::int32_t>& last) {
  require_scalars();
  collect(touched);
  EliminationCounts counts;
  Plan plan;
  plan.vertex = vertices_;
  plan.inner = static_cast<int>(vertices_.size());
  this->plan(plan, edges_of(touched, affected_), orphans_, last);
  take_right_hand_side(affected_);
  for (const std::int32_t c : affected_) {
    for (const std::int32_t v : cliques_[c].shape->frontals) clique_of_.set(v, -1);
    cliques_.set(c, {});
    children_.set(c, {});
    parent_.set(c, -1);
    set_energy(c, 0.0);
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
  job_of_.resize(static_cast<std::size_t>(cliques_.size()), -1);
  for (std::size_t k = 0; k < jobs.size(); ++k)
    job_of_[static_cast<std::size_t>(jobs[k].clique)] = static_cast<std::int32_t>(k);
  for (const std::int32_t o : orphans_) {
    std::int32_t first = -1;
    for (const std::int32_t v : cliques_[o].shape->separator)
      if (first == -1 || position_of_[v] < position_of_[first]) first = v;
    const std::int32_t parent = clique_of_[first];
    parent_.set(o, parent);
    children[static_cast<std::size_t>(job_of_[static_cast<std::size_t>(parent)])].push_back(o);
  }
  for (std::size_t k = 0; k < plan.nodes.size(); ++k) {
    jobs[k].parent = plan.nodes[k].parent;
    if (jobs[k].parent < 0) continue;
    const auto parent = static_cast<std::size_t>(jobs[k].parent);
    parent_.set(jobs[k].clique, jobs[parent].clique);
    children[parent].push_back(jobs[k].clique);
  }
  std::vector<Clique> fresh(jobs.size());
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    add_children_to(jobs[k], children[k], fresh);
    counts.edges += static_cast<std::int64_t>(jobs[k].shape->edges.size());
  }
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    job_of_[static_cast<std::size_t>(jobs[k].clique)] = -1;
    children_.set(jobs[k].clique, std::move(children[k]));
  }
  counts.ordered = plan.is_minimum_degree;
  counts.vertices = static_cast<std::int64_t>(vertices_.size());
  counts.flops = plan.flops;
  const std::int32_t failed = compute(jobs, fresh);
  const std::size_t num_done = failed < 0 ? jobs.size() : static_cast<std::size_t>(failed);
  for (std::size_t k = 0; k < num_done; ++k) cliques_.set(jobs[k].clique, fresh[k]);
  if (failed >= 0) throw_failure(jobs[num_done]);
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
  std::vector<Clique> fresh(affected_.size());  // put in place when all of them are there
  job_of_.resize(static_cast<std::size_t>(cliques_.size()), -1);
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    Job& job = jobs[k];
    job.clique = affected_[k];
    job_of_[static_cast<std::size_t>(job.clique)] = static_cast<std::int32_t>(k);
    job.shape = cliques_[job.clique].shape;
    counts.vertices += static_cast<std::int64_t>(job.shape->frontals.size());
    counts.edges += static_cast<std::int64_t>(job.shape->edges.size());
    add_children_to(job, children_[job.clique], fresh);
  }
  for (Job& job : jobs)  // all of them are there now
    if (const std::int32_t c = parent_[job.clique]; c >= 0) job.parent = job_of_[static_cast<std::size_t>(c)];
  for (const std::int32_t c : affected_) job_of_[static_cast<std::size_t>(c)] = -1;
  if (const std::int32_t failed = compute(jobs, fresh); failed >= 0)
    throw_failure(jobs[static_cast<std::size_t>(failed)]);
  take_right_hand_side(affected_);
  for (std::size_t k = 0; k < jobs.size(); ++k) cliques_.set(jobs[k].clique, std::move(fresh[k]));
  counts.cliques = static_cast<std::int64_t>(jobs.size());
  return counts;
}

}  // namespace graphopt::online
