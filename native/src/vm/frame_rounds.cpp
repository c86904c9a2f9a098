#include "vm/frame_rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace graphopt::vm {
namespace {

constexpr double kTooWide = 1e9;  // width at which a robust kernel does nothing

// Whether anybody changed sides.
bool judge(Linearizer& linearizer, const std::vector<JudgedEdges>& edges, const std::vector<double>& limits,
           const JudgedObservations& seen) {
  const std::int64_t count = seen.holds.size();
  std::vector<std::int32_t> dims(static_cast<std::size_t>(count), 0);
  std::fill(seen.chi2.data, seen.chi2.data + count, 0.0);
  std::vector<double> errors;
  for (const JudgedEdges& one : edges) {
    const int dim = linearizer.group(one.group).residual_dim;
    errors.resize(static_cast<std::size_t>(one.weight.size() * dim));
    linearizer.errors(one.group, errors.data());
    for (std::int64_t row = 0; row < one.weight.size(); ++row) {
      const std::int32_t number = one.observation.data[row];
      if (number < 0 || !seen.holds.data[number]) continue;
      const double* e = errors.data() + row * dim;
      double square = 0.0;
      for (int k = 0; k < dim; ++k) square += e[k] * e[k];
      seen.chi2.data[number] += one.weight.data[row] * square;
      dims[static_cast<std::size_t>(number)] += dim;
    }
  }
  bool changed = false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!seen.holds.data[i]) seen.chi2.data[i] = std::numeric_limits<double>::infinity();
    const double limit = limits[static_cast<std::size_t>(dims[static_cast<std::size_t>(i)])];
    const bool now = seen.holds.data[i] && seen.chi2.data[i] <= limit;
    changed = changed || now != seen.inliers.data[i];
    seen.inliers.data[i] = now;
  }
  return changed;
}

void check(Linearizer& linearizer, const std::vector<JudgedEdges>& edges, const RoundRules& rules,
           const JudgedObservations& seen) {
  const std::int64_t count = seen.holds.size();
  if (seen.inliers.size() != count || seen.chi2.size() != count)
    throw std::invalid_argument("run_rounds: holds, inliers and chi2 must have one length");
  std::vector<int> dims(static_cast<std::size_t>(count), 0);
  for (const JudgedEdges& one : edges) {
    const EdgeGroup& group = linearizer.group(one.group);
    if (one.weight.size() != group.num_rows || one.observation.size() != group.num_rows)
      throw std::invalid_argument(
          "run_rounds: weight and observation have one entry per edge of their group");
    for (std::int64_t row = 0; row < group.num_rows; ++row) {
      const std::int32_t number = one.observation.data[row];
      if (number < 0) continue;
      if (number >= count) throw std::invalid_argument("run_rounds: an edge names an observation beyond");
      dims[static_cast<std::size_t>(number)] += group.residual_dim;
    }
  }
  const int most = dims.empty() ? 0 : *std::max_element(dims.begin(), dims.end());
  if (most >= static_cast<int>(rules.limits.size()))
    throw std::invalid_argument("run_rounds: no limit for an observation's dimension");
}

// Let the edges of inliers count with their weights; the others stay where they are, with none.
void weigh(Linearizer& linearizer, const std::vector<JudgedEdges>& edges, const RoundRules& round_rules,
           const View<bool>& inliers, bool robust) {
  std::vector<double> weight;
  for (const JudgedEdges& one : edges) {
    const std::size_t dim = static_cast<std::size_t>(linearizer.group(one.group).residual_dim);
    weight.assign(one.weight.data, one.weight.data + one.weight.size());
    for (std::size_t row = 0; row < weight.size(); ++row) {
      const std::int32_t number = one.observation.data[row];
      if (number < 0 || !inliers.data[number]) weight[row] = 0.0;
    }
    const View<const double> weights{weight.data(), one.weight.size(), 1, nullptr};
    linearizer.set_weights(one.group, weights, robust ? std::sqrt(round_rules.limits[dim]) : kTooWide);
  }
}

}  // namespace

template <class Method>
RoundsResult run_rounds(SmallLoop& loop, Linearizer& linearizer, const Method& fresh, const StopRules& rules,
                        const std::vector<JudgedEdges>& edges, const RoundRules& round_rules,
                        const JudgedObservations& seen, const ShouldStop& should_stop) {
  check(linearizer, edges, round_rules, seen);
  RoundsResult result;
  for (int round = 0; round < round_rules.rounds; ++round) {
    const std::int64_t taking_part =
        std::count(seen.inliers.data, seen.inliers.data + seen.inliers.size(), true);
    if (taking_part < round_rules.min_observations || (round > 0 && should_stop())) break;
    const bool robust = round < round_rules.robust_rounds;
    weigh(linearizer, edges, round_rules, seen.inliers, robust);
    Method method = fresh;
    LoopResult last = loop.run(method, rules, should_stop);
    last.linearize_seconds += result.last.linearize_seconds;
    last.solve_seconds += result.last.solve_seconds;
    last.update_seconds += result.last.update_seconds;
    result.last = std::move(last);
    result.rounds = round + 1;
    if (!judge(linearizer, edges, round_rules.limits, seen) && !robust) break;
  }
  return result;
}

template RoundsResult run_rounds(SmallLoop&, Linearizer&, const GaussNewton&, const StopRules&,
                                 const std::vector<JudgedEdges>&, const RoundRules&,
                                 const JudgedObservations&, const ShouldStop&);
template RoundsResult run_rounds(SmallLoop&, Linearizer&, const Levenberg&, const StopRules&,
                                 const std::vector<JudgedEdges>&, const RoundRules&,
                                 const JudgedObservations&, const ShouldStop&);
template RoundsResult run_rounds(SmallLoop&, Linearizer&, const Dogleg&, const StopRules&,
                                 const std::vector<JudgedEdges>&, const RoundRules&,
                                 const JudgedObservations&, const ShouldStop&);

}  // namespace graphopt::vm
