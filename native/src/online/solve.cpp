// What follows a change: elimination, and steps until nothing is left that matters.
#include <algorithm>
#include <cmath>
#include <utility>

#include "online/session.h"

namespace graphopt::online {
namespace {

constexpr double kBatchTolerance = 1e-15;  // of chi2, predicted decrease that batch leaves
constexpr int kBatchIterations = 200;
constexpr int kRoundingAfter = 3;          // steps of batch
constexpr double kRounding = 1e-11;        // of chi2: a prediction that no longer falls
constexpr double kChi2Rounding = 1e-13;    // of chi2: by which it may rise
constexpr int kHalvings = 10;              // of a step that does not lower chi2
constexpr double kLargeGain = 10.0;        // of the goal: steps that may be taken back
constexpr double kLooseH = 1e-4;           // change of H beside its diagonal that may matter
constexpr double kMuchH = 1e-3;            // that always does
constexpr double kLooseEnergy = 0.1;       // of the goal: what all edges may add to H along a step
constexpr double kPoorConvergence = 0.3;   // of the prediction before: the factor is too old
constexpr double kLeft = 0.9;              // of the goal: what a step may miss that is not tested
constexpr std::size_t kSample = 32;        // newest edges whose models are tested
constexpr std::int64_t kOlder = 32;        // of those before them, at this distance
constexpr std::int64_t kOlderStride = 16;  // where a pose has many edges the newest ones are of few poses
constexpr double kMissPerSample = 10.0;    // what all edges miss beside these
constexpr double kMissOfGain = 0.005;      // what a step misses at least
constexpr double kSameStep = 0.1;          // of the goal: change of a promise that needs no new test
constexpr double kUntested = 20.0;         // updates without a step, where edges may be wrong
constexpr double kLeastShare = 1e-7;       // of what a step promises: less of it is rounding
constexpr std::int64_t kVerticesPerUpdate = 64;  // of looking at all of b
constexpr double kSufficient = 0.1;              // of the promised decrease that a step has to reach
constexpr double kNewest = 0.3;                  // of the time of steps: weight of the last one
constexpr std::size_t kNamedVertices = 10;
constexpr std::size_t kFewEdges =
    256;  // that may have models at other estimates than where they were evaluated

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

// Evaluate edges after a step and note stale ones: those whose H has changed at all, or, with a goal, so much
// that it matters. Returns by how much chi2 is higher than the models had it.
//
// Where few directions are stiff a small change of H is much beside what holds the others. How much it is
// along the step tells. Covariances have all directions: while they decide on edges that may be wrong, every
// change counts that may matter.
double Session::relinearize(const std::vector<std::int32_t>& edges, double goal, Report& report) {
  Problem::Evaluation how;
  if (goal > 0.0) {
    how.tolerance = kLooseH;
    how.most = kMuchH;
    how.energy = kLooseEnergy * goal / static_cast<double>(problem_.counts[Problem::kEdges]);
    if (problem_.counts[Problem::kBounded] == 0) how.step = tree_.step();
  }
  const double change = problem_.evaluate(edges, how);
  report.evaluated += static_cast<std::int64_t>(edges.size());
  for (const std::int32_t e : edges)
    if (problem_.flags[e] & kStale) stale_.push_back(e);
  return change;
}

std::vector<std::int32_t> Session::active_edges() const {
  std::vector<std::int32_t> edges;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (problem_.is_active(e)) edges.push_back(e);
  return edges;
}

void Session::take_all_steps() {
  if (is_ahead_[0] == 0) return;
  const Tree::Step step = tree_.backward(0.0);
  problem_.move(step.vertices, tree_.step(), 1.0);
  problem_.evaluate(edges_of(step.vertices), {});
  is_ahead_.set(0, 0);
  nonlinearity_.set(kModelShift, 0.0);
}

// Evaluates edges that are new, where their vertices are.
void Session::evaluate_new(Report& report) {
  report.evaluated += static_cast<std::int64_t>(new_edges_.size());
  if (is_ahead_[0] != 0 && new_edges_.size() > kFewEdges) take_all_steps();
  std::vector<std::int32_t> here, ahead;
  for (const std::int32_t e : new_edges_) {
    if (!problem_.is_active(e)) continue;
    bool has_step = false;
    for (int s = 0; s < problem_.arity(e) && is_ahead_[0] != 0; ++s)
      has_step = has_step || (problem_.is_free(problem_.vertices_of(e)[s]) &&
                              tree_.has_clique(problem_.vertices_of(e)[s]));
    (has_step ? ahead : here).push_back(e);
  }
  if (!here.empty()) evaluate_anew(here);
  if (!ahead.empty())
    nonlinearity_.set(kModelShift, nonlinearity_[kModelShift] +
                                       problem_.evaluate_at(ahead, tree_.steps_of(ends_of(ahead))));
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
  bool is_done = true;
  try {
    report.refreshed_cliques += tree_.refresh(edges).cliques;
    for (const std::int32_t e : edges)
      problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] & ~kStale));
  } catch (const Singular&) {
    is_done = false;
  }
  report.eliminate_seconds += seconds_since(start);
  return is_done;
}

// All of b into the tree.
void Session::look_at_all(bool is_batch, Report& report) {
  if (is_batch) relinearize(active_edges(), 0.0, report);
  std::vector<double> g;
  problem_.sum_again(g);
  tree_.clear_right_hand_side();
  tree_.forget_gradient();
  for (std::int32_t v = 0; v < problem_.num_places(); ++v)
    if (problem_.is_free(v)) problem_.set_pending(v, g.data() + problem_.offset[v]);
}

// All of `pending` into the tree. Small parts count: many of them together move what H holds loosely.
void Session::forward() {
  std::vector<std::int32_t> active;
  for (const std::int32_t v : problem_.changed)
    if (problem_.is_free(v) && tree_.has_clique(v)) active.push_back(v);
  problem_.forget_changed();
  tree_.forward(active);
}

// Take the step; a large one only if chi2 falls with it, or as much of it as `halvings` allow. Whether all of
// it was taken.
bool Session::take(const Tree::Step& step, const Trial& trial, Report& report) {
  const bool may_return = trial.is_exact || step.gain > kLargeGain * trial.goal;
  const double before = problem_.chi2();
  const std::vector<std::int32_t> edges = edges_of(step.vertices);
  Journal::Mark mark;
  const bool was_recording = journal_.records();
  if (may_return) {
    journal_.set_records(true);
    mark = journal_.mark();
  }
  const std::size_t num_stale = stale_.size();
  double scale = 1.0;
  for (int halving = 0;; ++halving) {
    problem_.move(step.vertices, tree_.step(), scale);
    const double change = relinearize(edges, trial.is_exact ? 0.0 : trial.goal, report);
    const double promised = step.gain * scale * (2.0 - scale);
    if (!may_return ||
        (std::isfinite(change) && problem_.chi2() <= before - kSufficient * promised + trial.slack))
      break;
    journal_.undo_to(mark);
    stale_.resize(num_stale);
    scale = halving >= trial.halvings ? 0.0 : 0.5 * scale;
    if (scale == 0.0) break;
  }
  if (may_return && !was_recording) stop_recording();
  if (scale == 0.0) relinearize(edges, 0.0, report);
  report.moved += static_cast<std::int64_t>(step.vertices.size());
  return scale == 1.0;
}

// Edges that this update changed and others added last; of many, and of those before them, every so many.
std::vector<std::int32_t> Session::newest_edges() const {
  std::vector<std::int32_t> edges;
  const std::size_t stride = new_edges_.size() / kSample + 1;
  for (std::size_t k = 0; k < new_edges_.size(); k += stride) edges.push_back(new_edges_[k]);
  for (std::int64_t k = 1; edges.size() < kSample && k <= static_cast<std::int64_t>(kSample); ++k) {
    const std::int32_t e = problem_.edge_of_handle.find(next_handle_[0] - k);
    if (e >= 0) edges.push_back(e);
  }
  for (std::int64_t k = 1; k <= kOlder; ++k) {
    const std::int32_t e =
        problem_.edge_of_handle.find(next_handle_[0] - static_cast<std::int64_t>(kSample) - k * kOlderStride);
    if (e >= 0) edges.push_back(e);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  edges.erase(
      std::remove_if(edges.begin(), edges.end(),
                     [&](std::int32_t e) { return !problem_.is_active(e) || problem_.edge_kind[e] < 0; }),
      edges.end());
  return edges;
}

// By how much chi2 stays above its least after a step. An edge whose error at the end of it is r + dr where
// its model has r misses at most |dr|^2, which chi2 of both tells where dr is parallel to r.
double Session::expected_miss() {
  const std::vector<std::int32_t> edges = newest_edges();
  const double* const steps = tree_.steps_of(ends_of(edges));
  const std::vector<vm::AlignedVector<double>> outputs = problem_.outputs_at(edges, steps);
  double missed = 0.0;
  for (std::size_t k = 0; k < edges.size(); ++k) {
    const double model = std::max(0.0, problem_.model_chi2(edges[k], steps));
    const double change = std::sqrt(outputs[k][0]) - std::sqrt(model);
    missed += change * change;
  }
  const auto share = static_cast<double>(new_edges_.size() / kSample + 1);
  return std::isfinite(missed) ? kMissPerSample * share * missed : INFINITY;
}

// Goal and cut for what is left of chi2 now.
void Session::set_goal(Solving& now) const {
  const double chi2 = std::max(0.0, problem_.chi2() - tree_.remaining());
  now.goal = now.is_batch ? kBatchTolerance * std::max(settings.absolute, chi2)
                          : std::max(settings.absolute, settings.tolerance * chi2);
  const auto cliques = static_cast<double>(std::max<std::int64_t>(1, tree_.num_cliques()));
  now.cut = now.is_batch ? 0.0 : settings.cut * std::max(now.goal, kLeastShare * tree_.remaining()) / cliques;
}

// Whether vertices may stay where they are, because the step would miss little of what it promises.
bool Session::get_ahead(const Solving& now, Report& report) {
  if (now.is_batch || now.is_rejected) return false;
  if (problem_.counts[Problem::kBounded] > 0 && nonlinearity_[kUpdatesAhead] >= kUntested) return false;
  const bool is_other_graph =
      2 * static_cast<std::int64_t>(new_edges_.size()) > problem_.counts[Problem::kEdges];
  if (is_other_graph && report.iterations == 0 && report.remaining > kLeft * now.goal) return false;
  if (std::abs(report.remaining - nonlinearity_[kTestedAt]) > kSameStep * now.goal) {
    const double gain = std::max(0.0, report.remaining - nonlinearity_[kModelShift]);
    const double share = report.iterations > 0 ? std::min(1.0, report.remaining / now.predicted) : 0.0;
    nonlinearity_.set(kMissed, std::max(expected_miss() + kMissOfGain * gain, share * report.remaining));
    nonlinearity_.set(kTestedAt, report.remaining);
  }
  if (nonlinearity_[kMissed] > kLeft * now.goal) return false;
  nonlinearity_.set(kUpdatesAhead, nonlinearity_[kUpdatesAhead] + 1.0);
  stay_ahead(report);
  return true;
}

// The same, however much it misses.
void Session::stay_ahead(Report& report) {
  is_ahead_.set(0, 1);
  report.remaining = std::min(report.remaining, nonlinearity_[kMissed]);
}

// A step that was interrupted by other processes says little.
void Session::learn_seconds(double seconds) {
  const double sample = seconds / static_cast<double>(problem_.counts[Problem::kFreeVertices]);
  double& rate = seconds_per_vertex_;
  rate = rate == 0.0 ? sample : rate + kNewest * (std::min(sample, 2.0 * rate) - rate);
}

// Whether the rest is rounding: it no longer falls.
bool Session::is_rounding(const Solving& now, const Report& report) const {
  return now.is_batch && report.iterations > kRoundingAfter && report.remaining > 0.5 * now.predicted &&
         report.remaining < kRounding * problem_.chi2();
}

// Whether also with a new factor a step had to be halved, as where wrong edges strain the graph. That may go
// on for many small ones, while the next edges may show what is wrong: what is left goes on in the next
// update.
bool Session::is_stuck(const Solving& now) const {
  return !now.is_batch && now.num_rejected > 1 && problem_.counts[Problem::kBounded] > 0;
}

// Whether there is time for a step, as far as those before tell. What takes longer than a budget is done when
// there is nothing else to do; part of a step would strain the edges between what moves and what does not.
bool Session::may_step(const Solving& now, const Report& report, Clock::time_point start) const {
  if (now.is_batch || !(settings.budget > 0.0)) return true;
  const auto vertices = static_cast<double>(problem_.counts[Problem::kFreeVertices]);
  const bool is_idle = touched_.empty() && (report.iterations == 0 || now.is_rejected);
  return seconds_since(start) + seconds_per_vertex_ * vertices < settings.budget || is_idle;
}

void Session::take_step(Solving& now, Report& report) {
  const auto solving = Clock::now();
  const Tree::Step step = tree_.backward(now.cut);
  report.visited_cliques += step.cliques;
  report.solve_seconds += seconds_since(solving);
  const auto taking = Clock::now();
  Trial trial;
  trial.goal = now.goal;
  trial.slack = now.is_batch ? kChi2Rounding * problem_.chi2() : now.goal;
  trial.is_exact = now.is_batch || now.is_poor;
  trial.halvings = now.is_batch || now.is_rejected ? kHalvings : 0;  // a newer factor first
  now.is_rejected = !take(step, trial, report);
  now.num_rejected = now.is_rejected ? now.num_rejected + 1 : 0;
  now.is_poor = now.is_poor || now.is_rejected ||
                (report.iterations > 0 && report.remaining > kPoorConvergence * now.predicted);
  now.predicted = report.remaining;
  now.gain = now.is_rejected ? 0.0 : step.gain;
  nonlinearity_.set(kModelShift, 0.0);
  nonlinearity_.set(kUpdatesAhead, 0.0);
  nonlinearity_.set(kTestedAt, 0.0);
  nonlinearity_.set(kMissed, 0.0);
  ++report.iterations;
  report.evaluate_seconds += seconds_since(taking);
}

void Session::solve(bool is_batch, Report& report, Clock::time_point start) {
  const auto num_edges = static_cast<std::int32_t>(problem_.edge_kind.size());
  stale_.erase(std::remove_if(stale_.begin(), stale_.end(), [&](std::int32_t e) { return e >= num_edges; }),
               stale_.end());  // of a refused update
  is_ahead_.set(0, 0);
  std::int64_t every = settings.full_check;  // updates; what it costs on the average does not grow
  while (every * kVerticesPerUpdate < problem_.counts[Problem::kFreeVertices]) every *= 2;
  if (is_batch || updates_[0] % every == 0) look_at_all(is_batch, report);
  const int most = is_batch ? kBatchIterations : settings.max_iterations;
  Solving now;
  now.is_batch = is_batch;
  for (;;) {
    const auto solving = Clock::now();
    refresh(std::exchange(stale_, {}), report);
    const auto substituting = Clock::now();
    forward();
    report.remaining = tree_.remaining();
    report.solve_seconds += seconds_since(substituting);
    if (report.iterations > 0) learn_seconds(now.seconds + seconds_since(solving));
    set_goal(now);
    report.converged = get_ahead(now, report) || report.remaining <= now.goal || is_rounding(now, report);
    if (report.converged || report.iterations == most || is_stuck(now)) break;
    if (!may_step(now, report, start)) {
      stay_ahead(report);
      break;
    }
    const auto stepping = Clock::now();
    take_step(now, report);
    now.seconds = seconds_since(stepping);
  }
  if (report.iterations > 0) is_exact_.set(0, 0);
}

Report Session::commit(bool is_batch) {
  check_open();
  const auto start = Clock::now();
  Report report;
  updates_.set(0, updates_[0] + 1);
  const double chi2_before = present_chi2();
  evaluate_new(report);
  if (!doubtful_.empty()) {
    const std::vector<std::int32_t> trusted = std::exchange(new_edges_, {});
    judge_new(report);
    evaluate_new(report);
    new_edges_.insert(new_edges_.begin(), trusted.begin(), trusted.end());
  }
  report.evaluate_seconds += seconds_since(start);
  if (!touched_.empty()) {
    eliminate(report);
    is_exact_.set(0, 0);
  }
  for (const std::int32_t v : leaving_) problem_.remove_vertex(v);
  if (doubtful_.empty()) stop_recording();  // from here on nothing can be refused
  solve(is_batch, report, start);
  judge(is_batch, chi2_before, report, start);
  report.chi2 = present_chi2();
  report.vertices = problem_.counts[Problem::kVertices];
  report.free_vertices = problem_.counts[Problem::kFreeVertices];
  report.edges = problem_.counts[Problem::kEdges];
  report.seconds = seconds_since(start);
  is_open_ = false;
  return report;
}

const double* Session::steps_of(const std::vector<std::int32_t>& vertices) {
  return is_ahead_[0] != 0 ? tree_.steps_of(vertices) : nullptr;
}

const double* Session::all_steps() {
  if (is_ahead_[0] == 0) return nullptr;
  tree_.backward(0.0);
  return tree_.step();
}

void Session::make_fresh() {
  if (is_exact_[0] != 0) return;
  take_all_steps();
  std::vector<std::int32_t> edges = active_edges();
  problem_.evaluate(edges, {});
  Report report;
  if (!refresh(std::move(edges), report))
    throw Refused("H at the present estimates is singular; batch() finds better ones.");
  forward();
  is_exact_.set(0, 1);
}

}  // namespace graphopt::online
