// What follows a change: elimination, and steps until nothing is left that matters.
#include <algorithm>
#include <cmath>

#include "online/session.h"

namespace graphopt::online {
namespace {

constexpr double kBatchTolerance = 1e-15;  // of chi2, predicted decrease that batch leaves
constexpr double kShareOfCut = 1e-4;       // that a vertex' part of b must have: many small ones add up
constexpr int kBatchIterations = 200;
constexpr int kHalvings = 10;             // of a step that does not lower chi2
constexpr double kLargeGain = 10.0;       // of the goal: steps that may be taken back
constexpr double kLooseH = 0.15;          // change of H beside its diagonal that matters
constexpr double kTightH = 1e-3;          // the same in batch, which ends closer
constexpr double kPoorConvergence = 0.3;  // of the prediction before: the factor is too old
constexpr double kTested = 1e-3;          // of the goal: what models of all vertices may miss
constexpr double kWidest = 2.0;           // growth of a tested range at once
constexpr double kNarrowest = 0.01;
constexpr double kOtherScalars = 0.3;  // of the range of the scalar that moved most
constexpr std::size_t kNamedVertices = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

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

// Evaluate the edges of vertices, bring models and `pending` up to date and note stale edges. Returns by how
// much chi2 is higher than the models had it.
double Session::relinearize(const std::vector<std::int32_t>& vertices, double tolerance, double goal,
                            Report& report) {
  if (vertices.empty()) return 0.0;
  const std::vector<std::int32_t> edges = edges_of(vertices);
  std::vector<double> before;  // drift and pending of each scalar
  for (const std::int32_t v : vertices)
    for (int i = 0; i < problem_.dim(v); ++i) {
      const std::int64_t k = problem_.offset[v] + i;
      before.push_back(problem_.drifts[k]);
      before.push_back(problem_.pending[k]);
      problem_.drifts.set(k, 0.0);
    }
  problem_.recenter(ends_of(edges));
  Problem::Evaluation how;
  how.tolerance = tolerance;
  const double change = problem_.evaluate(edges, how);
  report.evaluated += static_cast<std::int64_t>(edges.size());
  for (const std::int32_t e : edges)
    if (problem_.flags[e] & kStale) stale_.push_back(e);
  widen(vertices, before, goal);
  return change;
}

// What a model misses in b grows with the square of the step: the range up to which it misses little enough.
void Session::widen(const std::vector<std::int32_t>& vertices, const std::vector<double>& before,
                    double goal) {
  const double most = kTested * goal /
                      static_cast<double>(std::max<std::int64_t>(1, problem_.counts[Problem::kFreeVertices]));
  const double* at = before.data();
  for (const std::int32_t v : vertices) {
    double missed = 0.0, largest = 0.0;
    const int dim = problem_.dim(v);
    for (int i = 0; i < dim; ++i) {
      const std::int64_t k = problem_.offset[v] + i;
      const double y = (problem_.pending[k] - at[2 * i + 1]) * tree_.scale(k);
      missed += y * y;
      largest = std::max(largest, std::abs(at[2 * i]) / tree_.scale(k));
    }
    const double factor =
        missed > 0.0 ? std::min(kWidest, std::max(kNarrowest, std::sqrt(std::sqrt(most / missed)))) : kWidest;
    for (int i = 0; i < dim; ++i) {
      const std::int64_t k = problem_.offset[v] + i;
      const double step = factor * std::max(std::abs(at[2 * i]), kOtherScalars * largest * tree_.scale(k));
      problem_.ranges.set(k, factor < 1.0 ? step : std::max(problem_.ranges[k], step));
    }
    at += 2 * dim;
  }
}

// Put the stale ones of these edges into the factor. False if that is impossible; then nothing has changed.
bool Session::refresh(std::vector<std::int32_t> edges, Report& report) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  edges.erase(
      std::remove_if(edges.begin(), edges.end(),
                     [&](std::int32_t e) { return !problem_.is_active(e) || !(problem_.flags[e] & kStale); }),
      edges.end());
  if (edges.empty()) return true;
  const auto start = Clock::now();
  journal_.set_records(true);
  const Journal::Mark mark = journal_.mark();
  bool is_done = true;
  try {
    evaluate_anew(edges);
    report.refreshed_cliques += tree_.refresh(edges).cliques;
  } catch (const Singular&) {
    is_done = false;
  } catch (const Refused&) {
    is_done = false;
  }
  if (!is_done) journal_.undo_to(mark);
  stop_recording();
  report.eliminate_seconds += seconds_since(start);
  return is_done;
}

// All of b into the tree, evaluated where vertices have moved.
void Session::look_at_all(bool is_batch, Report& report) {
  std::vector<std::int32_t> moved;
  for (std::int32_t v = 0; v < problem_.num_places(); ++v)
    if (problem_.is_free(v) && problem_.has_step(v)) moved.push_back(v);
  relinearize(moved, is_batch ? kTightH : kLooseH, settings.tolerance * problem_.chi2(), report);
  if (is_batch)
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
      if (problem_.is_active(e) && (problem_.flags[e] & kStale)) stale_.push_back(e);
  std::vector<double> g;
  problem_.sum_again(g);
  tree_.clear_right_hand_side();
  tree_.forget_gradient();
  for (std::int32_t v = 0; v < problem_.num_places(); ++v)
    if (problem_.is_free(v)) problem_.set_pending(v, g.data() + problem_.offset[v]);
}

// Those parts of `pending` that matter.
void Session::forward(double cut) {
  std::vector<std::int32_t> active;
  for (const std::int32_t v : problem_.changed) {
    if (!problem_.is_free(v) || !tree_.has_clique(v)) continue;
    double share = 0.0;
    for (int i = 0; i < problem_.dim(v); ++i) {
      const double y = problem_.pending[problem_.offset[v] + i] * tree_.scale(problem_.offset[v] + i);
      share += y * y;
    }
    if (share > kShareOfCut * cut) active.push_back(v);
  }
  problem_.forget_changed();
  tree_.forward(active);
}

// Take the step; a large one only if chi2 does not rise, or as much of it as `halvings` allow. Whether all of
// it was taken.
bool Session::take(const Tree::Step& step, const Trial& trial, Report& report) {
  const bool may_return = trial.is_exact || step.gain > kLargeGain * trial.goal;
  const double before = problem_.chi2();
  Journal::Mark mark;
  if (may_return) {
    journal_.set_records(true);
    mark = journal_.mark();
  }
  const std::size_t num_stale = stale_.size();
  double gain = step.gain, scale = 1.0;
  for (int halving = 0;; ++halving) {
    problem_.add_steps(step.vertices, tree_.step(), scale);
    std::vector<std::int32_t> tested;
    for (const std::int32_t v : step.vertices)
      if (may_return || problem_.is_out_of_range(v)) tested.push_back(v);
    problem_.add_chi2(-gain);
    const double change = relinearize(tested, trial.tolerance, trial.goal, report);
    if (!may_return || (std::isfinite(change) && problem_.chi2() <= before + trial.slack)) break;
    journal_.undo_to(mark);
    stale_.resize(num_stale);
    scale = halving >= trial.halvings ? 0.0 : 0.5 * scale;
    gain = tree_.scale_step(scale);
    if (scale == 0.0) break;
  }
  if (may_return) stop_recording();
  if (scale < 1.0) relinearize(step.vertices, kTightH, trial.goal, report);
  report.moved += static_cast<std::int64_t>(step.vertices.size());
  return scale == 1.0;
}

void Session::solve(bool is_batch, Report& report, Clock::time_point start) {
  stale_.clear();
  if (is_batch || updates_[0] % settings.full_check == 0) look_at_all(is_batch, report);
  const int most = is_batch ? kBatchIterations : settings.max_iterations;
  const bool has_deadline = settings.budget > 0.0 && !is_batch;
  const auto deadline =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.budget));
  double previous = 0.0;
  bool is_poor = false, is_rejected = false;
  for (int iteration = 0;; ++iteration) {
    const auto solving = Clock::now();
    const double goal = is_batch ? kBatchTolerance * problem_.chi2()
                                 : std::max(settings.absolute, settings.tolerance * problem_.chi2());
    const double cut =
        is_batch ? 0.0
                 : settings.cut * goal / static_cast<double>(std::max<std::int64_t>(1, tree_.num_cliques()));
    forward(cut);
    report.remaining = tree_.remaining();
    const bool is_late = has_deadline && Clock::now() > deadline;
    if (!stale_.empty() && !is_late && report.remaining > goal) {
      refresh(std::move(stale_), report);
      stale_.clear();
      forward(cut);
      report.remaining = tree_.remaining();
    }
    report.converged =
        report.remaining <= goal || (is_batch && iteration > 3 && report.remaining > 0.5 * previous &&
                                     report.remaining < 1e-11 * problem_.chi2());
    if (report.converged || iteration == most || is_late) {
      report.solve_seconds += seconds_since(solving);
      break;
    }
    const Tree::Step step = tree_.backward(cut, has_deadline ? &deadline : nullptr);
    report.visited_cliques += step.cliques;
    report.solve_seconds += seconds_since(solving);
    const auto taking = Clock::now();
    Trial trial;
    trial.goal = goal;
    trial.slack = is_batch ? 1e-13 * problem_.chi2() : goal;
    trial.is_exact = is_batch || is_poor;
    trial.tolerance = trial.is_exact ? kTightH : kLooseH;
    trial.halvings = is_batch || is_rejected ? kHalvings : 0;  // a newer factor first
    is_rejected = !take(step, trial, report);
    is_poor = is_poor || is_rejected || (iteration > 0 && report.remaining > kPoorConvergence * previous);
    ++report.iterations;
    previous = report.remaining;
    report.evaluate_seconds += seconds_since(taking);
  }
  if (report.iterations > 0) is_exact_.set(0, 0);
}

Report Session::commit(bool is_batch) {
  check_open();
  const auto start = Clock::now();
  Report report;
  updates_.set(0, updates_[0] + 1);
  evaluate_anew(new_edges_);
  for (const std::int32_t v : ends_of(new_edges_))  // ranges were tested without these edges
    for (int i = 0; i < problem_.dim(v); ++i) problem_.ranges.set(problem_.offset[v] + i, 0.0);
  report.evaluated += static_cast<std::int64_t>(new_edges_.size());
  report.evaluate_seconds += seconds_since(start);
  if (!touched_.empty()) {
    eliminate(report);
    is_exact_.set(0, 0);
  }
  for (const std::int32_t v : leaving_) problem_.remove_vertex(v);
  stop_recording();  // from here on nothing can be refused
  solve(is_batch, report, start);
  report.chi2 = problem_.chi2();
  report.vertices = problem_.counts[Problem::kVertices];
  report.free_vertices = problem_.counts[Problem::kFreeVertices];
  report.edges = problem_.counts[Problem::kEdges];
  report.seconds = seconds_since(start);
  is_open_ = false;
  return report;
}

void Session::make_fresh() {
  if (is_exact_[0] != 0) return;
  std::vector<std::int32_t> edges;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (problem_.is_active(e)) edges.push_back(e);
  problem_.recenter(ends_of(edges));
  problem_.evaluate(edges, Problem::Evaluation());
  Report report;
  if (!refresh(std::move(edges), report))
    throw Refused("H at the present estimates is singular; batch() finds better ones.");
  forward(0.0);
  is_exact_.set(0, 1);
}

}  // namespace graphopt::online
