#include "online/session.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace graphopt::online {
namespace {

constexpr double kBatchTolerance = 1e-15;  // of chi2, predicted decrease that batch leaves
constexpr double kShareOfCut = 1e-4;       // that a vertex' part of b must have: many small ones add up
constexpr int kBatchIterations = 200;
constexpr int kHalvings = 10;             // of a step that does not lower chi2
constexpr double kPoorDecrease = 0.5;     // of what a step promised: the factor is too old
constexpr double kPoorConvergence = 0.3;  // of the prediction before
constexpr double kLeastWaiting = 0.05;    // of the goal: a prediction that the next update has to know of
constexpr double kLargeGain = 10.0;       // of the goal: below it rounding and what was left out count
constexpr std::size_t kNamedVertices = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Session::Session()
    : problem_(journal_),
      tree_(journal_, problem_),
      next_handle_(journal_),
      updates_(journal_),
      is_unsolved_(journal_),
      waiting_(journal_) {
  next_handle_.push_back(0);
  updates_.push_back(0);
  is_unsolved_.push_back(0);
  waiting_.push_back({});
}

void Session::check_open() const {
  if (!is_open_) throw std::logic_error("Online: begin() comes first");
}

void Session::begin() {
  if (is_open_) throw std::logic_error("Online: an update is being made already");
  journal_.set_records(true);
  start_ = journal_.mark();
  is_open_ = true;
  touched_.clear();
  last_.clear();
  new_edges_.clear();
  leaving_.clear();
}

void Session::abort() {
  if (!is_open_) return;
  journal_.undo_to(start_);
  is_open_ = false;
  if (snapshots_.empty()) {
    journal_.forget();
    journal_.set_records(false);
  }
}

std::int32_t Session::vertex(std::int64_t id) const {
  const std::int32_t v = problem_.vertex_of_id.find(id);
  if (v < 0) throw Refused("There is no vertex " + std::to_string(id) + ".");
  return v;
}

std::int32_t Session::edge(std::int64_t handle) const {
  const std::int32_t e = problem_.edge_of_handle.find(handle);
  if (e < 0)
    throw Refused("There is no edge with handle " + std::to_string(handle) +
                  ": it was removed, or marginalized with its vertices.");
  return e;
}

// ---------------------------------------------------------------------- changes

void Session::add_vertices(int kind, const std::int64_t* ids, const double* estimates, const bool* fixed,
                           std::int64_t count) {
  check_open();
  const int storage = problem_.kinds[static_cast<std::size_t>(kind)]->storage_dim;
  for (std::int64_t k = 0; k < count; ++k) {
    if (problem_.vertex_of_id.find(ids[k]) >= 0)
      throw Refused("A vertex with id " + std::to_string(ids[k]) + " exists already.");
    const std::int32_t v = problem_.add_vertex(kind, ids[k], estimates + k * storage, fixed[k]);
    if (problem_.is_free(v)) {
      touched_.push_back(v);
      last_.push_back(v);
    }
  }
}

void Session::touch_edge(std::int32_t e) {
  for (int s = 0; s < problem_.arity(e); ++s) {
    const std::int32_t v = problem_.vertices_of(e)[s];
    if (problem_.is_free(v)) touched_.push_back(v);
  }
}

// Whether an edge takes part follows from its vertices.
void Session::settle(std::int32_t e) {
  bool is_idle = true;
  for (int s = 0; s < problem_.arity(e); ++s)
    is_idle = is_idle && !problem_.is_free(problem_.vertices_of(e)[s]);
  const std::uint8_t flags = problem_.flags[e];
  if (((flags & kIdle) != 0) == is_idle) return;
  if (is_idle && problem_.is_active(e)) problem_.drop_share(e);
  problem_.flags.set(e, static_cast<std::uint8_t>(is_idle ? flags | kIdle : flags & ~kIdle));
  if (!is_idle && problem_.is_active(e)) problem_.evaluate({e});
}

void Session::insert_edge(std::int32_t e) {
  settle(e);
  if (!problem_.is_active(e)) return;
  new_edges_.push_back(e);
  touch_edge(e);
}

void Session::take_out(std::int32_t e) {
  touch_edge(e);
  problem_.remove_edge(e);
}

std::int64_t Session::add_edges(int kind, const std::int64_t* vertices, const std::int32_t* parameter_rows,
                                const double* data, std::int64_t count) {
  check_open();
  const EdgeKind& own = *problem_.edge_kinds[static_cast<std::size_t>(kind)];
  const int arity = own.arity();
  const auto num_parameters = static_cast<std::int64_t>(own.parameter_sets.size());
  const std::int64_t first = next_handle_[0];
  std::vector<std::int32_t> places(static_cast<std::size_t>(arity));
  std::vector<std::int32_t> added;
  for (std::int64_t k = 0; k < count; ++k) {
    for (int s = 0; s < arity; ++s) {
      const std::int64_t id = vertices[k * arity + s];
      const std::int32_t v = problem_.vertex_of_id.find(id);
      if (v < 0)
        throw Refused("Edge " + std::to_string(k) + " of those to add refers to vertex " +
                      std::to_string(id) + ", which does not exist.");
      if (problem_.kind[v] != own.vertex_kinds[static_cast<std::size_t>(s)])
        throw Refused("Edge " + std::to_string(k) + " of those to add refers to vertex " +
                      std::to_string(id) + ", which has another type.");
      for (int before = 0; before < s; ++before)
        if (places[static_cast<std::size_t>(before)] == v)
          throw Refused("Edge " + std::to_string(k) + " of those to add names vertex " + std::to_string(id) +
                        " twice.");
      places[static_cast<std::size_t>(s)] = v;
    }
    added.push_back(problem_.add_edge(kind, places.data(), parameter_rows + k * num_parameters,
                                      data + k * own.data_dim, first + k));
  }
  next_handle_.set(0, first + count);
  for (const std::int32_t e : added) insert_edge(e);
  return first;
}

void Session::replace_edge(std::int64_t handle, int kind, const std::int64_t* vertices,
                           const std::int32_t* parameter_rows, const double* data) {
  const std::int32_t old = edge(handle);
  const bool is_off = (problem_.flags[old] & kOff) != 0;
  take_out(old);
  const std::int64_t next = next_handle_[0];
  next_handle_.set(0, handle);
  add_edges(kind, vertices, parameter_rows, data, 1);
  next_handle_.set(0, next);
  if (is_off) switch_edges(&handle, 1, true);
}

void Session::put_edge(std::int64_t its_handle, int kind, const std::int64_t* vertices,
                       const std::int32_t* parameter_rows, const double* data) {
  next_handle_.set(0, its_handle);
  add_edges(kind, vertices, parameter_rows, data, 1);
}

void Session::put_prior(std::int64_t its_handle, Prior prior, const std::vector<std::int64_t>& ids) {
  check_open();
  prior.first.assign(1, 0);
  for (const std::int64_t id : ids) {
    prior.vertices.push_back(vertex(id));
    prior.first.push_back(prior.first.back() + problem_.dim(prior.vertices.back()));
  }
  prior.gradient.assign(prior.b.size(), 0.0);
  if (prior.first.back() != static_cast<int>(prior.b.size()))
    throw Refused("The prior does not fit its vertices.");
  insert_edge(problem_.add_prior(std::make_shared<const Prior>(std::move(prior)), its_handle));
}

void Session::remove_edges(const std::int64_t* handles, std::int64_t count) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) take_out(edge(handles[k]));
}

void Session::switch_edges(const std::int64_t* handles, std::int64_t count, bool off) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t e = edge(handles[k]);
    const std::uint8_t flags = problem_.flags[e];
    if (((flags & kOff) != 0) == off) continue;
    if (off && problem_.is_active(e)) problem_.drop_share(e);
    problem_.flags.set(e, static_cast<std::uint8_t>(off ? flags | kOff : flags & ~kOff));
    touch_edge(e);
    if (!off && problem_.is_active(e)) new_edges_.push_back(e);
  }
}

void Session::set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t v = vertex(ids[k]);
    if ((problem_.state[v] == VertexState::kFixed) == fixed) continue;
    touched_.push_back(v);
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry])
      touch_edge(problem_.entry_edge[entry]);
    problem_.state.set(v, fixed ? VertexState::kFixed : VertexState::kFree);
    problem_.count(Problem::kFreeVertices, fixed ? -1 : 1);
    problem_.count(Problem::kScalars, fixed ? -problem_.dim(v) : problem_.dim(v));
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry])
      settle(problem_.entry_edge[entry]);
  }
}

void Session::set_estimate(std::int64_t id, const double* estimate) {
  check_open();
  const std::int32_t v = vertex(id);
  VertexKind& kind = *problem_.kinds[static_cast<std::size_t>(problem_.kind[v])];
  kind.estimate.write(static_cast<std::int64_t>(problem_.row[v]) * kind.storage_dim, estimate,
                      kind.storage_dim);
  for (const std::int32_t e : edges_of({v})) {
    new_edges_.push_back(e);
    touch_edge(e);
  }
}

void Session::remove_vertices(const std::int64_t* ids, std::int64_t count) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t v = vertex(ids[k]);
    while (problem_.first_of[v] >= 0) take_out(problem_.entry_edge[problem_.first_of[v]]);
    touched_.push_back(v);
    set_fixed(ids + k, 1, true);
    problem_.vertex_of_id.erase(ids[k]);
    leaving_.push_back(v);
  }
}

void Session::marginalize(const std::int64_t* ids, std::int64_t count) {
  check_open();
  if (count == 0) return;
  std::vector<std::int32_t> vertices;
  for (std::int64_t k = 0; k < count; ++k) {
    vertices.push_back(vertex(ids[k]));
    if (std::count(ids, ids + k, ids[k]) > 0)
      throw Refused("Vertex " + std::to_string(ids[k]) + " is to be marginalized twice.");
    if (!problem_.is_free(vertices.back()))
      throw Refused("Vertex " + std::to_string(ids[k]) + " is fixed: remove it instead of marginalizing it.");
  }
  problem_.evaluate(new_edges_);
  std::vector<std::shared_ptr<const Prior>> priors;
  try {
    priors = tree_.marginalize(vertices);
  } catch (const Singular& singular) {
    throw Refused(
        "The vertices to marginalize are not determined by their edges: " +
        std::to_string(problem_.id[singular.vertices.empty() ? vertices[0] : singular.vertices[0]]) +
        " can move.");
  }
  for (const std::int32_t v : vertices)
    while (problem_.first_of[v] >= 0) take_out(problem_.entry_edge[problem_.first_of[v]]);
  new_edges_.erase(std::remove_if(new_edges_.begin(), new_edges_.end(),
                                  [&](std::int32_t e) { return !problem_.is_active(e); }),
                   new_edges_.end());
  remove_vertices(ids, count);
  for (auto& prior : priors) {
    const std::int32_t e = problem_.add_prior(std::move(prior), next_handle_[0]);
    next_handle_.set(0, next_handle_[0] + 1);
    insert_edge(e);
  }
}

// ---------------------------------------------------------------------- solving

std::vector<std::int32_t> Session::edges_of(const std::vector<std::int32_t>& vertices) {
  std::vector<std::int32_t> edges;
  stamp_.resize(std::max<std::size_t>(stamp_.size(), static_cast<std::size_t>(std::max<std::int64_t>(
                                                         problem_.edge_kind.size(), problem_.num_places()))),
                0);
  ++stamp_now_;
  for (const std::int32_t v : vertices)
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
      const std::int32_t e = problem_.entry_edge[entry];
      if (!problem_.is_active(e) || stamp_[static_cast<std::size_t>(e)] == stamp_now_) continue;
      stamp_[static_cast<std::size_t>(e)] = stamp_now_;
      edges.push_back(e);
    }
  return edges;
}

// Free vertices of the edges, each once, without those that have no clique.
void Session::collect_ends(const std::vector<std::int32_t>& edges, std::vector<std::int32_t>& vertices) {
  stamp_.resize(std::max<std::size_t>(stamp_.size(), static_cast<std::size_t>(std::max<std::int64_t>(
                                                         problem_.edge_kind.size(), problem_.num_places()))),
                0);
  ++stamp_now_;
  std::size_t kept = 0;
  const auto add = [&](std::int32_t v) {
    if (!problem_.is_free(v) || !tree_.has_clique(v) || stamp_[static_cast<std::size_t>(v)] == stamp_now_)
      return false;
    stamp_[static_cast<std::size_t>(v)] = stamp_now_;
    return true;
  };
  for (const std::int32_t v : vertices)
    if (add(v)) vertices[kept++] = v;
  vertices.resize(kept);
  for (const std::int32_t e : edges)
    for (int s = 0; s < problem_.arity(e); ++s)
      if (add(problem_.vertices_of(e)[s])) vertices.push_back(problem_.vertices_of(e)[s]);
}

void Session::refresh(const std::vector<std::int32_t>& edges, Report& report) {
  if (edges.empty()) return;
  const auto start = Clock::now();
  report.refreshed_cliques += tree_.refresh(edges).cliques;
  report.eliminate_seconds += seconds_since(start);
}

// Take the step, or a part of it after which chi2 is higher by `slack` at most. edges: those of its vertices.
// Whether the whole was taken.
bool Session::try_step(const Tree::Step& step, const std::vector<std::int32_t>& edges, double slack,
                       int halvings, Report& report) {
  const double before = problem_.chi2();
  std::vector<std::vector<double>> kept;
  for (const std::int32_t v : step.vertices) {
    const double* const x = problem_.estimate(v);
    kept.emplace_back(x, x + problem_.kinds[static_cast<std::size_t>(problem_.kind[v])]->storage_dim);
  }
  const auto put_back = [&] {
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const std::int32_t v = step.vertices[k];
      VertexKind& kind = *problem_.kinds[static_cast<std::size_t>(problem_.kind[v])];
      kind.estimate.write(static_cast<std::int64_t>(problem_.row[v]) * kind.storage_dim, kept[k].data(),
                          kind.storage_dim);
    }
  };
  double scale = 1.0;
  for (int halving = 0; halving <= halvings; ++halving, scale *= 0.5) {
    problem_.oplus(step.vertices, tree_.step(), scale);
    report.evaluated += static_cast<std::int64_t>(edges.size());
    bool is_good = true;
    try {
      problem_.evaluate(edges);
    } catch (const Refused&) {
      is_good = false;
    }
    if (is_good && problem_.chi2() <= before + slack) return halving == 0;
    put_back();
  }
  problem_.evaluate(edges);
  return false;
}

void Session::eliminate(Report& report) {
  const auto start = Clock::now();
  std::vector<std::int32_t> last;
  for (const std::int32_t e : new_edges_)
    for (int s = 0; s < problem_.arity(e); ++s)
      if (problem_.is_free(problem_.vertices_of(e)[s])) last.push_back(problem_.vertices_of(e)[s]);
  last.insert(last.end(), last_.begin(), last_.end());
  std::reverse(last.begin(), last.end());  // the newest are to be the very last, however often they are named
  std::vector<std::int32_t> distinct;
  for (const std::int32_t v : last)
    if (std::find(distinct.begin(), distinct.end(), v) == distinct.end() && distinct.size() < 64)
      distinct.push_back(v);
  std::reverse(distinct.begin(), distinct.end());
  try {
    const EliminationCounts counts = tree_.eliminate(touched_, distinct);
    report.eliminated_vertices += counts.vertices;
    report.eliminated_cliques += counts.cliques;
    report.ordered = counts.ordered;
  } catch (const Singular& singular) {
    std::vector<std::int64_t> ids;
    for (const std::int32_t v : singular.vertices) ids.push_back(problem_.id[v]);
    std::sort(ids.begin(), ids.end());
    std::string names;
    for (std::size_t k = 0; k < std::min(ids.size(), kNamedVertices); ++k)
      names += (k > 0 ? ", " : "") + std::to_string(ids[k]);
    if (ids.size() > kNamedVertices) names += ", ... (" + std::to_string(ids.size()) + " in all)";
    throw Refused((ids.size() == 1 ? "Vertex " : "Vertices ") + names +
                  " can move without a change of chi2: the edges do not determine " +
                  (ids.size() == 1 ? "it" : "them") +
                  ". Fix a vertex, or add an edge or a prior that holds the direction.");
  }
  report.eliminate_seconds += seconds_since(start);
}

void Session::solve(bool is_batch, Report& report, Clock::time_point start) {
  std::vector<std::int32_t> candidates = touched_;
  candidates.insert(candidates.end(), waiting_[0].begin(), waiting_[0].end());
  collect_ends(new_edges_, candidates);
  bool looks_at_all = false;
  const auto look_at_all = [&] {
    looks_at_all = true;
    problem_.sum_again();
    candidates.clear();
    for (std::int32_t v = 0; v < problem_.num_places(); ++v)
      if (problem_.is_free(v) && tree_.has_clique(v)) candidates.push_back(v);
  };
  if (is_batch || is_unsolved_[0] != 0 || updates_[0] % settings.full_check == 0) {
    look_at_all();
    if (is_unsolved_[0] != 0) is_unsolved_.set(0, 0);
  }
  const int most = is_batch ? kBatchIterations : settings.max_iterations;
  double previous = 0.0;
  bool is_poor = false;
  report.converged = false;
  for (int iteration = 0; iteration <= most; ++iteration) {
    if (is_batch || is_poor) {
      // the factor is too old where b is left
      std::vector<std::int32_t> stale;
      if (is_batch) {
        for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
          if (problem_.is_active(e) && (problem_.flags[e] & kStale)) stale.push_back(e);
      } else {
        for (const std::int32_t e : edges_of(candidates))
          if (problem_.flags[e] & kStale) stale.push_back(e);
      }
      refresh(stale, report);
    }
    const auto solving = Clock::now();
    const double goal = is_batch ? kBatchTolerance * problem_.chi2()
                                 : std::max(settings.absolute, settings.tolerance * problem_.chi2());
    const double cut =
        is_batch ? 0.0
                 : settings.cut * goal / static_cast<double>(std::max<std::int64_t>(1, tree_.num_cliques()));
    std::vector<std::int32_t> active;
    for (const std::int32_t v : candidates) {
      double share = 0.0;
      for (int i = 0; i < problem_.dim(v); ++i) {
        const double y = problem_.gradient[problem_.offset[v] + i] * tree_.scale(problem_.offset[v] + i);
        share += y * y;
      }
      if (share > kShareOfCut * cut) active.push_back(v);
    }
    report.remaining = tree_.forward(active, problem_.gradient.data());
    report.converged =
        report.remaining <= goal || (is_batch && iteration > 3 && report.remaining > 0.5 * previous &&
                                     report.remaining < 1e-11 * problem_.chi2());
    const bool is_late = settings.budget > 0.0 && seconds_since(start) > settings.budget;
    if (report.converged || iteration == most || is_late) {
      if (!is_batch && report.remaining > kLeastWaiting * goal) {
        waiting_.set(0, looks_at_all ? std::vector<std::int32_t>() : active);
        if (looks_at_all) is_unsolved_.set(0, 1);
      } else if (!waiting_[0].empty()) {
        waiting_.set(0, {});
      }
      report.solve_seconds += seconds_since(solving);
      break;
    }
    const Tree::Step step = tree_.backward(cut);
    report.visited_cliques += step.cliques;
    report.solve_seconds += seconds_since(solving);
    const auto evaluating = Clock::now();
    const double before = problem_.chi2();
    const std::vector<std::int32_t> edges = edges_of(step.vertices);
    const bool is_whole =
        try_step(step, edges, is_batch ? 1e-13 * before : goal, is_batch || is_poor ? kHalvings : 0, report);
    for (const std::int32_t e : edges)
      if (!(problem_.flags[e] & kStale)) {
        problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] | kStale));
        problem_.count(Problem::kStaleEdges, 1);
      }
    report.moved += static_cast<std::int64_t>(step.vertices.size());
    ++report.iterations;
    const bool is_large = report.remaining > kLargeGain * goal;
    is_poor = !is_whole || (is_large && before - problem_.chi2() < kPoorDecrease * report.remaining) ||
              (iteration > 1 && report.remaining > kPoorConvergence * previous);
    previous = report.remaining;
    if (!is_whole && !looks_at_all) {
      look_at_all();
    } else if (!looks_at_all) {
      candidates = active;
      collect_ends(edges, candidates);
    }
    report.evaluate_seconds += seconds_since(evaluating);
  }
}

Report Session::commit(bool is_batch) {
  check_open();
  const auto start = Clock::now();
  Report report;
  updates_.set(0, updates_[0] + 1);
  new_edges_.erase(std::remove_if(new_edges_.begin(), new_edges_.end(),
                                  [&](std::int32_t e) { return !problem_.is_active(e); }),
                   new_edges_.end());
  problem_.evaluate(new_edges_);
  report.evaluated += static_cast<std::int64_t>(new_edges_.size());
  report.evaluate_seconds += seconds_since(start);
  if (!touched_.empty()) eliminate(report);
  for (const std::int32_t v : leaving_) problem_.remove_vertex(v);
  solve(is_batch, report, start);
  report.chi2 = problem_.chi2();
  report.vertices = problem_.counts[Problem::kVertices];
  report.free_vertices = problem_.counts[Problem::kFreeVertices];
  report.edges = problem_.counts[Problem::kEdges];
  report.seconds = seconds_since(start);
  is_open_ = false;
  if (snapshots_.empty()) {
    journal_.forget();
    journal_.set_records(false);
  }
  return report;
}

// ---------------------------------------------------------------------- versions

std::int64_t Session::snapshot() {
  if (is_open_) throw std::logic_error("Online: an update is being made");
  journal_.set_records(true);
  snapshots_[next_snapshot_] = journal_.mark();
  return next_snapshot_++;
}

void Session::restore(std::int64_t number) {
  const auto found = snapshots_.find(number);
  if (found == snapshots_.end())
    throw Refused("This snapshot is gone: an older one was restored, or it was taken of another object.");
  if (is_open_) throw std::logic_error("Online: an update is being made");
  journal_.undo_to(found->second);
  snapshots_.erase(std::next(found), snapshots_.end());
}

void Session::forget(std::int64_t number) {
  snapshots_.erase(number);
  if (!snapshots_.empty() || is_open_) return;
  journal_.forget();
  journal_.set_records(false);
}

void Session::make_fresh() {
  if (problem_.counts[Problem::kStaleEdges] == 0) return;
  std::vector<std::int32_t> stale;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (problem_.is_active(e) && (problem_.flags[e] & kStale)) stale.push_back(e);
  tree_.refresh(stale);
}

}  // namespace graphopt::online
