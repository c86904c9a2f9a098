// Edges that may be wrong: truncated least squares, decided as the graph grows.
//
//   chi2 = sum over trusted edges r^2 + sum over the others min(r^2, c^2),      r^2 = e' Omega e
//
// A new edge joins if it is not a surprise, S being the covariance of its error before it joins:
//
//   e' S^-1 e = r^2 - g' (I + Sigma H)^-1 Sigma g <= c^2,     S = J Sigma J' + Omega^-1, g = J' Omega e, H =
//   J' Omega J
//
// with Sigma the joint covariance of its vertices. Outliers near their bounds, which a wrong edge that joined
// before them may have kept out, join together where e' S^-1 e of all of them is at most the sum of their
// bounds. After vertices have moved all decisions are looked at
// again: an edge leaves when r^2 > c^2 and joins when r^2 <= c^2. Each change lowers chi2 for the estimates
// of that moment and the solution that follows lowers it further, so that decisions do not go in circles. c^2
// is scaled by what the edges that joined show, where information matrices say less than the measurements
// know. Reference: Yang et al., Graduated Non-Convexity for Robust Spatial Perception, RA-L 2020 (the
// objective); Neira and Tardos, Data association in stochastic mapping using the joint compatibility test,
// T-RA 2001.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "online/session.h"

namespace graphopt::online {
namespace {

constexpr int kRounds = 10;               // of decisions in one update
constexpr double kMargin = 3.0;           // of the noise that edges show
constexpr double kLeastNoise = 1e-4;      // of what information matrices say
constexpr std::int64_t kEnoughRows = 30;  // more than unknowns, that tell the noise
constexpr double kNear = 16.0;            // of its bound: an outlier that may be right with others
constexpr int kLookedAt = 8;              // of these, the newest

bool is_outlier(const Problem& problem, std::int32_t e) {
  return (problem.flags[e] & (kUsed | kOff | kIdle | kOutlier)) == (kUsed | kOutlier);
}

}  // namespace

void Session::enter(std::int32_t e) {
  problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] & ~kOutlier));
  if (!problem_.is_active(e)) return;
  new_edges_.push_back(e);
  touch_edge(e);
}

void Session::leave(std::int32_t e) {
  if (problem_.is_active(e)) problem_.drop_share(e);
  nonlinearity_.set(kModelShift, 0.0);
  problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] | kOutlier));
  touch_edge(e);
}

void Session::decide(const std::int64_t* handles, const double* bounds, const bool* outliers,
                     std::int64_t count) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t e = edge(handles[k]);
    problem_.set_bound(e, bounds[k]);
    if (((problem_.flags[e] & kOutlier) != 0) == outliers[k]) continue;
    outliers[k] ? leave(e) : enter(e);
    doubtful_.erase(std::remove(doubtful_.begin(), doubtful_.end(), e), doubtful_.end());
  }
}

void Session::trust(const std::int64_t* handles, std::int64_t count) {
  const double bound = 0.0;
  const bool is_outlier = false;
  for (std::int64_t k = 0; k < count; ++k) decide(handles + k, &bound, &is_outlier, 1);
}

// chi2 of what has joined per row more than unknowns, as a share of what information matrices say.
double Session::noise() const {
  std::int64_t rows = -problem_.counts[Problem::kScalars];
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (problem_.is_active(e))
      rows += problem_.edge_kind[e] < 0 ? problem_.state_dim(e) : problem_.kind_of(e).residual_dim;
  if (rows < kEnoughRows) return 1.0;
  const double chi2 = std::max(0.0, problem_.chi2() - tree_.remaining());
  return std::clamp(kMargin * chi2 / static_cast<double>(rows), kLeastNoise, 1.0);
}

// Whether other edges hold all of its vertices.
bool Session::is_held(std::int32_t e) const {
  for (int s = 0; s < problem_.arity(e); ++s) {
    const std::int32_t v = problem_.vertices_of(e)[s];
    bool is_held = !problem_.is_free(v);
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0 && !is_held;
         entry = problem_.entry_next[entry])
      is_held = problem_.entry_edge[entry] != e && problem_.is_active(problem_.entry_edge[entry]);
    if (!is_held) return false;
  }
  return true;
}

// New edges join before anything is solved where they fit already, or where nothing else holds a vertex.
void Session::judge_new(Report& report) {
  const double scale = noise();
  std::vector<std::int32_t> rest;
  for (const std::int32_t e : doubtful_) {
    bool fits = false;
    if (is_outlier(problem_, e)) {
      const double* const steps = is_ahead_[0] != 0 ? tree_.steps_of(ends_of({e})) : nullptr;
      const double chi2 = problem_.outputs_at({e}, steps)[0][0];
      if (!std::isfinite(chi2)) problem_.refuse_as_not_finite(e);
      fits = chi2 <= scale * problem_.bound[e] || !is_held(e);
      ++report.evaluated;
    }
    if (fits) {
      enter(e);
    } else {
      rest.push_back(e);
    }
  }
  doubtful_ = rest;
}

// e' S^-1 e of edges that have not joined, together, from their outputs at the present estimates.
double Session::innovation(const std::vector<std::int32_t>& edges,
                           const std::vector<const double*>& outputs) {
  using Eigen::MatrixXd;
  const std::vector<std::int32_t> vertices = ends_of(edges);
  std::unordered_map<std::int32_t, int> row_of;
  int size = 0;
  for (const std::int32_t v : vertices) row_of[v] = std::exchange(size, size + problem_.dim(v));
  MatrixXd H = MatrixXd::Zero(size, size), sigma(size, size);
  Eigen::VectorXd g = Eigen::VectorXd::Zero(size);
  double chi2 = 0.0;
  for (std::size_t k = 0; k < edges.size(); ++k) {
    const EdgeKind& own = problem_.kind_of(edges[k]);
    std::vector<int> rows, to;  // of the edge's scalars, those of free vertices
    for (int s = 0, first = 0; s < own.arity(); first += own.dims[static_cast<std::size_t>(s++)]) {
      const std::int32_t v = problem_.vertices_of(edges[k])[s];
      for (int i = 0; problem_.is_free(v) && i < problem_.dim(v); ++i)
        rows.push_back(first + i), to.push_back(row_of[v] + i);
    }
    const std::vector<double> matrix = problem_.matrix_of(problem_.edge_kind[edges[k]], outputs[k] + 1);
    H(to, to) += Eigen::Map<const MatrixXd>(matrix.data(), own.state_dim, own.state_dim)(rows, rows);
    g(to) += Eigen::Map<const Eigen::VectorXd>(outputs[k] + own.first_segment, own.state_dim)(rows);
    chi2 += outputs[k][0];
  }
  tree_.covariance(vertices, vertices, sigma.data());
  const MatrixXd system = MatrixXd::Identity(size, size) + sigma * H;
  return chi2 - g.dot(system.partialPivLu().solve(sigma * g));
}

// Edges that have not joined, `first` the newest of them, and are right or wrong together: each alone is a
// surprise, but all of them add less to chi2 than they are allowed to. Empty: there are none.
std::vector<std::int32_t> Session::compatible_with(std::int32_t first, double scale) {
  std::vector<std::int32_t> outside;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (is_outlier(problem_, e)) outside.push_back(e);
  std::sort(outside.begin(), outside.end(), [&](std::int32_t a, std::int32_t b) {
    return std::make_pair(a != first, -problem_.handle[a]) < std::make_pair(b != first, -problem_.handle[b]);
  });
  const auto outputs = problem_.outputs_at(outside, steps_of(ends_of(outside)));
  std::vector<std::int32_t> found;
  std::vector<const double*> its;
  double expected = 0.0, allowed = 0.0;
  int looked_at = 0;
  for (std::size_t k = 0; k < outside.size() && looked_at < kLookedAt; ++k) {
    const double bound = scale * problem_.bound[outside[k]];
    if (outputs[k][0] > kNear * bound) continue;
    ++looked_at;
    found.push_back(outside[k]);
    its.push_back(outputs[k].data());
    const double together = innovation(found, its);
    if (found.size() == 1 || together - expected <= bound) {
      expected = together, allowed += bound;
    } else {
      found.pop_back(), its.pop_back();
    }
  }
  if (expected > allowed) found.clear();
  return found;
}

// chi2 at the present estimates, as far as models tell.
double Session::present_chi2() const {
  return problem_.chi2() - (is_ahead_[0] != 0 ? tree_.remaining() : 0.0);
}

// Whether what came with an update is a surprise: chi2 is larger than before by more than an outlier may
// have.
bool Session::is_surprised(double chi2_before) const {
  if (problem_.counts[Problem::kBounded] == 0) return false;
  double least = INFINITY;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (problem_.bound[e] > 0.0 && problem_.is_active(e)) least = std::min(least, problem_.bound[e]);
  return std::isfinite(least) && present_chi2() - chi2_before > noise() * least;
}

// Whether decisions have changed. Those on edges that were there before are looked at when vertices have
// moved.
bool Session::revise(bool has_moved, Report& report) {
  const double scale = noise();
  std::vector<std::int32_t> outside = doubtful_;
  std::vector<std::int32_t> leaving;
  if (has_moved) {
    outside.clear();
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e) {
      if (!(problem_.bound[e] > 0.0)) continue;
      if (is_outlier(problem_, e)) outside.push_back(e);
      if (problem_.is_active(e) && problem_.rho_of(e) > scale * problem_.bound[e] && is_held(e))
        leaving.push_back(e);
    }
  }
  outside.erase(std::remove_if(outside.begin(), outside.end(),
                               [&](std::int32_t e) { return !is_outlier(problem_, e); }),
                outside.end());
  const double* const steps = outside.empty() ? nullptr : steps_of(ends_of(outside));
  const std::vector<vm::AlignedVector<double>> outputs = problem_.outputs_at(outside, steps);
  report.evaluated += static_cast<std::int64_t>(outside.size());
  std::vector<std::int32_t> entering, near;
  for (std::size_t k = 0; k < outside.size(); ++k) {
    const std::int32_t e = outside[k];
    const double bound = scale * problem_.bound[e];
    const bool is_new = std::find(doubtful_.begin(), doubtful_.end(), e) != doubtful_.end();
    if (outputs[k][0] <= bound || (is_new && innovation({e}, {outputs[k].data()}) <= bound)) {
      entering.push_back(e);
    } else if (is_new && outputs[k][0] <= kNear * bound) {
      near.push_back(e);
    }
  }
  if (entering.empty() && !near.empty()) entering = compatible_with(near.back(), scale);
  for (const std::int32_t e : entering) enter(e), report.accepted.push_back(problem_.handle[e]);
  for (const std::int32_t e : leaving) leave(e), report.rejected.push_back(problem_.handle[e]);
  return !entering.empty() || !leaving.empty();
}

// Each edge once, by what was decided last: outliers, and edges that count again and are not new.
void Session::report_decisions(const std::vector<std::int32_t>& fresh, Report& report) const {
  std::vector<std::int64_t> looked_at(report.rejected), fresh_handles;
  looked_at.insert(looked_at.end(), report.accepted.begin(), report.accepted.end());
  for (const std::int32_t e : fresh) fresh_handles.push_back(problem_.handle[e]);
  looked_at.insert(looked_at.end(), fresh_handles.begin(), fresh_handles.end());
  std::sort(looked_at.begin(), looked_at.end());
  looked_at.erase(std::unique(looked_at.begin(), looked_at.end()), looked_at.end());
  report.rejected.clear();
  report.accepted.clear();
  for (const std::int64_t handle : looked_at) {
    if (is_outlier(problem_, edge(handle))) {
      report.rejected.push_back(handle);
    } else if (std::find(fresh_handles.begin(), fresh_handles.end(), handle) == fresh_handles.end()) {
      report.accepted.push_back(handle);
    }
  }
}

void Session::judge(bool is_batch, double chi2_before, Report& report, Clock::time_point start) {
  const std::vector<std::int32_t> fresh = doubtful_;
  std::int64_t iterations = 0;
  for (int round = 0; round < kRounds; ++round) {
    bool has_moved = report.iterations > iterations;
    if (!has_moved && doubtful_.empty() && !is_surprised(chi2_before)) break;
    iterations = report.iterations;
    journal_.set_records(true);
    const Journal::Mark mark = journal_.mark();
    const std::size_t accepted = report.accepted.size(), rejected = report.rejected.size();
    new_edges_.clear();
    touched_.clear();
    if (is_surprised(chi2_before)) {
      take_all_steps();
      has_moved = true;
    }
    if (!revise(has_moved, report)) break;
    doubtful_.clear();
    try {
      evaluate_new(report);
      eliminate(report);
    } catch (const Refused&) {  // without the edges that are to leave something can move: they stay
      tree_.clear_right_hand_side();
      problem_.forget_changed();
      problem_.forget_determined();
      journal_.undo_to(mark);
      report.accepted.resize(accepted);
      report.rejected.resize(rejected);
      break;
    }
    is_exact_.set(0, 0);
    solve(is_batch, report, start);
  }
  report_decisions(fresh, report);
  stop_recording();
}

std::pair<std::vector<std::int64_t>, std::vector<double>> Session::outliers() {
  std::vector<std::int32_t> edges;
  std::pair<std::vector<std::int64_t>, std::vector<double>> found;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
    if (is_outlier(problem_, e)) edges.push_back(e), found.first.push_back(problem_.handle[e]);
  const double scale = noise();
  const auto outputs = problem_.outputs_at(edges, edges.empty() ? nullptr : steps_of(ends_of(edges)));
  for (std::size_t k = 0; k < edges.size(); ++k)
    found.second.push_back(outputs[k][0] / (scale * problem_.bound[edges[k]]));
  return found;
}

}  // namespace graphopt::online
