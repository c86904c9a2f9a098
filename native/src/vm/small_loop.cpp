// Compiled without contraction to fused multiply-adds, which numpy does not use either.
#include "vm/small_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace graphopt::vm {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Timer {
 public:
  // is_on: else it reads no clock, which takes longer than small steps.
  explicit Timer(double& total, bool is_on) : total_(total), is_on_(is_on) {
    if (is_on) start_ = std::chrono::steady_clock::now();
  }
  ~Timer() {
    if (is_on_) total_ += seconds();
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& total_;
  const bool is_on_;
  std::chrono::steady_clock::time_point start_;
};

// Sum of term(i) in the order of numpy's pairwise summation of up to 128 numbers.
template <class Term>
double sum(std::int64_t n, Term term) {
  if (n < 8) {
    double total = 0.0;
    for (std::int64_t i = 0; i < n; ++i) total += term(i);
    return total;
  }
  double r[8];
  for (int k = 0; k < 8; ++k) r[k] = term(k);
  std::int64_t i = 8;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) r[k] += term(i + k);
  double total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) total += term(i);
  return total;
}

double dot(const double* a, const double* b, std::int64_t n) {
  return sum(n, [&](std::int64_t i) { return a[i] * b[i]; });
}

double norm(const double* a, std::int64_t n) { return std::sqrt(dot(a, a, n)); }

// Largest absolute value, NaN if there is a NaN.
template <class Term>
double largest(std::int64_t n, Term term) {
  double result = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = std::fabs(term(i));
    if (std::isnan(x)) return x;
    result = std::max(result, x);
  }
  return result;
}

double largest(const View<double>& x) {
  return largest(x.size(), [&](std::int64_t i) { return x.data[i]; });
}

// The point of the dogleg path at radius delta.
std::vector<double> dogleg_step(const std::vector<double>& steepest, const std::vector<double>& newton,
                                double delta) {
  const std::int64_t n = static_cast<std::int64_t>(newton.size());
  if (norm(newton.data(), n) < delta) return newton;
  std::vector<double> step(steepest);
  const double steepest_norm = norm(steepest.data(), n);
  if (steepest_norm > delta) {
    const double factor = delta / steepest_norm;
    for (double& x : step) x *= factor;
    return step;
  }
  std::vector<double> leg(newton);
  for (std::int64_t i = 0; i < n; ++i) leg[i] -= steepest[i];
  const double c = dot(steepest.data(), leg.data(), n), leg_squared = dot(leg.data(), leg.data(), n);
  const double missing = delta * delta - steepest_norm * steepest_norm;
  const double root = std::sqrt(c * c + leg_squared * missing);
  const double beta = c <= 0.0 ? (-c + root) / leg_squared : missing / (c + root);
  for (std::int64_t i = 0; i < n; ++i) step[i] = steepest[i] + beta * leg[i];
  return step;
}

}  // namespace

SmallLoop::SmallLoop(SmallSystem system) : system_(std::move(system)), dim_(system_.b.size()) {
  if (system_.dx.size() != dim_ || system_.diagonal.size() != dim_)
    throw std::invalid_argument("SmallLoop: b, dx and diagonal must have one length");
  damping_.resize(static_cast<std::size_t>(dim_));
}

double SmallLoop::linearize() {
  if (is_linearized_) {
    is_linearized_ = false;
    return result_->initial_chi2;
  }
  const Timer timer(result_->linearize_seconds, system_.is_timed);
  return system_.edges->linearize(system_.values.data, system_.values.size(), system_.b.data, dim_);
}

double SmallLoop::chi2() {
  const Timer timer(result_->linearize_seconds, system_.is_timed);
  return system_.edges->chi2();
}

bool SmallLoop::solve(double damping) {
  std::fill(damping_.begin(), damping_.end(), damping);
  return solve_damped();
}

bool SmallLoop::solve_damped() {
  const Timer timer(result_->solve_seconds, system_.is_timed);
  const bool is_damped = dim_ > 0 && damping_.front() != 0.0;
  const double* const damping = is_damped ? damping_.data() : nullptr;
  if (!system_.linear->factorize(system_.values.data, damping, system_.b.data)) return false;
  system_.linear->solve(system_.b.data, system_.dx.data);
  return true;
}

// By what share a step that is hardly damped promises to lower chi2; 0 if there is none.
double SmallLoop::promise() {
  LoopResult timed;
  result_ = &timed;
  const double before = linearize();
  for (const double value : LoopConstants::kProbes) {
    for (std::int64_t i = 0; i < dim_; ++i)
      damping_[i] = value * system_.values.data[system_.diagonal.data[i]];
    if (!solve_damped()) continue;
    const double *dx = system_.dx.data, *b = system_.b.data;
    const double gain = sum(dim_, [&](std::int64_t i) { return dx[i] * (damping_[i] * dx[i] + b[i]); });
    return std::isfinite(gain) && gain > 0.0 && before > 0.0 ? gain / before : 0.0;
  }
  return 0.0;
}

double SmallLoop::largest_diagonal() const {
  return largest(dim_, [&](std::int64_t i) { return system_.values.data[system_.diagonal.data[i]]; });
}

void SmallLoop::update() {
  const Timer timer(result_->update_seconds, system_.is_timed);
  system_.edges->oplus(system_.dx.data, dim_);
}

void SmallLoop::multiply(const double* x, double* y) {
  const Timer timer(result_->solve_seconds, system_.is_timed);
  system_.multiply(system_.values.data, x, y);
}

bool SmallLoop::converged(const LoopStep& step, double before, const StopRules& rules) const {
  const bool accepted = std::isfinite(step.step_size);
  if (accepted && rules.function_tolerance > 0.0 &&
      std::fabs(before - step.chi2) <= rules.function_tolerance * std::fabs(before))
    return true;
  if (accepted && rules.step_tolerance > 0.0 && step.step_size <= rules.step_tolerance) return true;
  return rules.gradient_tolerance > 0.0 && largest(system_.b) <= rules.gradient_tolerance;
}

template <class Method>
LoopResult SmallLoop::run(Method& method, const StopRules& rules, const ShouldStop& should_stop,
                          const AfterStep& after) {
  LoopResult result;
  result_ = &result;
  is_linearized_ = false;
  double before = rules.max_iterations > 0 ? linearize() : chi2();
  result.initial_chi2 = before;
  is_linearized_ = rules.max_iterations > 0;  // the first step finds H and b there
  if (!std::isfinite(before)) {
    is_linearized_ = false;
    result.ending = LoopEnding::kNonFinite;
    return result;
  }
  method.chi2 = before;
  for (int number = 0; number < rules.max_iterations && !should_stop(); ++number) {
    LoopStep step;
    double seconds = 0.0;
    {
      const Timer timer(seconds, system_.is_timed);
      step = method.step(*this, number, should_stop);
    }
    step.seconds = seconds;
    result.steps.push_back(step);
    result.ending = step.outcome;
    if (result.ending == LoopEnding::kRules && converged(step, before, rules))
      result.ending = LoopEnding::kConverged;
    if (after && !after(number, step)) break;
    if (result.ending != LoopEnding::kRules) break;
    before = step.chi2;
  }
  is_linearized_ = false;
  return result;
}

template <class Method>
LoopResult SmallLoop::run_to_end(Method& method, StopRules rules, const ShouldStop& should_stop,
                                 const AfterStep& after) {
  LoopResult all = run(method, rules, should_stop, after);
  std::size_t done = all.steps.size();
  double at_last_end = kInfinity;
  for (;;) {
    const bool is_settled = all.ending == LoopEnding::kConverged || all.ending == LoopEnding::kNoImprovement;
    rules.max_iterations -= static_cast<int>(done);
    const double tolerance = rules.function_tolerance;
    if (!is_settled || tolerance == 0.0 || rules.max_iterations <= 0 || should_stop()) return all;
    const double reached = all.steps.empty() ? all.initial_chi2 : all.steps.back().chi2;
    if (!(reached < (1.0 - tolerance) * at_last_end) || !method.loosen(*this, tolerance)) return all;
    at_last_end = reached;
    const LoopResult next = run(method, rules, should_stop, after);
    done = next.steps.size();
    all.ending = next.ending;
    all.steps.insert(all.steps.end(), next.steps.begin(), next.steps.end());
    all.linearize_seconds += next.linearize_seconds;
    all.solve_seconds += next.solve_seconds;
    all.update_seconds += next.update_seconds;
  }
}

#define INSTANTIATE(Method)                                                                           \
  template LoopResult SmallLoop::run(Method&, const StopRules&, const ShouldStop&, const AfterStep&); \
  template LoopResult SmallLoop::run_to_end(Method&, StopRules, const ShouldStop&, const AfterStep&);
INSTANTIATE(GaussNewton)
INSTANTIATE(Levenberg)
INSTANTIATE(Dogleg)
#undef INSTANTIATE

// -------------------------------------------------------------------- Gauss-Newton

LoopStep GaussNewton::step(SmallLoop& loop, int, const ShouldStop&) {
  LoopStep done;
  done.chi2 = chi2;
  done.step_size = kInfinity;
  loop.linearize();
  if (!loop.solve(0.0)) {
    done.outcome = LoopEnding::kLinearSolverFailure;
    return done;
  }
  const double size = largest(loop.system_.dx);
  done.outcome = LoopEnding::kNonFinite;
  if (!std::isfinite(size)) return done;
  Evaluation& edges = *loop.system_.edges;
  edges.push();
  loop.update();
  const double moved = loop.chi2();
  if (!std::isfinite(moved)) {
    edges.pop();
    return done;
  }
  edges.discard_top();
  done.chi2 = chi2 = moved;
  done.step_size = size;
  done.outcome = LoopEnding::kRules;
  return done;
}

// -------------------------------------------------------------------- Levenberg-Marquardt

LoopStep Levenberg::step(SmallLoop& loop, int iteration, const ShouldStop& should_stop) {
  LoopStep done;
  double current = loop.linearize();
  if (iteration == 0) {
    lambda = initial_lambda != 0.0 ? initial_lambda : tau * loop.largest_diagonal();
    nu = 2.0;
  }
  done.trials = 0;
  done.step_size = kInfinity;
  double rho;
  do {
    rho = trial(loop, current);
    ++done.trials;
    if (rho > 0.0) done.step_size = largest(loop.system_.dx);
  } while (rho < 0.0 && done.trials < max_trials && std::isfinite(lambda) && !should_stop());
  const bool ended = done.trials >= max_trials || rho == 0.0 || !std::isfinite(lambda);
  done.outcome = ended ? LoopEnding::kNoImprovement : LoopEnding::kRules;
  done.chi2 = chi2 = current;
  done.lambda = lambda;
  done.has_lambda = true;
  return done;
}

bool Levenberg::loosen(SmallLoop& loop, double tolerance) {
  const double least = LoopConstants::kLeastLambda * loop.largest_diagonal();
  if (lambda <= least || loop.promise() <= tolerance) return false;
  initial_lambda = lambda = least;
  nu = 2.0;
  return true;
}

// Try the present damping: rho; chi2 becomes that after the step if it is accepted.
double Levenberg::trial(SmallLoop& loop, double& current) {
  if (!loop.solve(lambda)) {
    reject();
    return -kInfinity;
  }
  const double *dx = loop.system_.dx.data, *b = loop.system_.b.data;
  const double predicted = sum(loop.dim_, [&](std::int64_t i) { return dx[i] * (lambda * dx[i] + b[i]); });
  const double scale = predicted + LoopConstants::kGainOffset;
  Evaluation& edges = *loop.system_.edges;
  edges.push();
  loop.update();
  const double moved = loop.chi2();
  const double rho = (current - moved) / scale;
  if (rho > 0.0 && std::isfinite(moved)) {
    const double alpha = std::min(1.0 - std::pow(2.0 * rho - 1.0, 3.0), upper_scale);
    lambda *= std::max(lower_scale, alpha);
    nu = 2.0;
    edges.discard_top();
    current = moved;
    return rho;
  }
  reject();
  edges.pop();
  return std::isfinite(rho) ? rho : -kInfinity;
}

void Levenberg::reject() {
  lambda *= nu;
  nu *= 2.0;
}

// -------------------------------------------------------------------- dogleg

LoopStep Dogleg::step(SmallLoop& loop, int, const ShouldStop& should_stop) {
  const std::int64_t n = loop.dim_;
  LoopStep done;
  done.step_size = kInfinity;
  double current = loop.linearize();
  const double* b = loop.system_.b.data;
  std::vector<double> steepest(b, b + n), product(static_cast<std::size_t>(n));
  loop.multiply(b, product.data());
  const double curvature = dot(b, product.data(), n);
  const double factor = curvature > 0.0 ? dot(b, b, n) / curvature : 0.0;
  for (double& x : steepest) x *= factor;
  if (!solve_gauss_newton(loop)) {
    done.outcome = LoopEnding::kLinearSolverFailure;
    done.chi2 = current;
    done.lambda = lambda;
    done.has_lambda = true;
    return done;
  }
  const std::vector<double> newton(loop.system_.dx.data, loop.system_.dx.data + n);
  std::vector<double> step = newton;
  bool accepted = false;
  done.trials = 0;
  while (!accepted && done.trials < max_trials && !(done.trials > 0 && should_stop())) {
    ++done.trials;
    step = dogleg_step(steepest, newton, delta);
    accepted = trial(loop, step, current);
  }
  done.chi2 = chi2 = current;
  done.lambda = lambda;
  done.has_lambda = !was_positive_definite;
  if (done.trials >= max_trials || !accepted) {
    done.outcome = LoopEnding::kNoImprovement;
    return done;
  }
  done.step_size = largest(n, [&](std::int64_t i) { return step[i]; });
  return done;
}

bool Dogleg::loosen(SmallLoop& loop, double tolerance) {
  if (delta >= initial_delta || loop.promise() <= tolerance) return false;
  delta = initial_delta;
  return true;
}

// Solve H dx = b, damped if H was ever indefinite; false beyond the largest damping.
bool Dogleg::solve_gauss_newton(SmallLoop& loop) {
  constexpr double kMinLambda = LoopConstants::kMinLambda, kMaxLambda = LoopConstants::kMaxLambda;
  constexpr int kMostDampings = 1000;
  for (int tried = 0; tried < kMostDampings; ++tried) {
    const bool solved = loop.solve(was_positive_definite ? 0.0 : lambda);
    was_positive_definite = was_positive_definite && solved;
    if (solved) {
      if (!was_positive_definite) lambda = std::max(kMinLambda, lambda / (0.5 * lambda_factor));
      return true;
    }
    lambda *= lambda_factor;
    if (lambda > kMaxLambda) {
      const double most = loop.largest_diagonal();
      if (!(lambda <= most && std::isfinite(most))) break;
    }
  }
  lambda = std::min(lambda, kMaxLambda);
  return false;
}

// Take the step, keep it if rho > 0, and adapt the trust region.
bool Dogleg::trial(SmallLoop& loop, const std::vector<double>& step, double& current) {
  const std::int64_t n = loop.dim_;
  std::vector<double> product(static_cast<std::size_t>(n));
  loop.multiply(step.data(), product.data());
  double linear_gain = 2.0 * dot(loop.system_.b.data, step.data(), n) - dot(step.data(), product.data(), n);
  if (std::fabs(linear_gain) < LoopConstants::kLeastLinearGain) linear_gain = LoopConstants::kLeastLinearGain;
  Evaluation& edges = *loop.system_.edges;
  edges.push();
  std::copy(step.begin(), step.end(), loop.system_.dx.data);
  loop.update();
  const double moved = loop.chi2();
  const double rho = (current - moved) / linear_gain;
  const bool accepted = rho > 0.0;
  if (accepted) {
    edges.discard_top();
    current = moved;
  } else {
    edges.pop();
  }
  if (rho > 0.75)
    delta = std::max(delta, 3.0 * norm(step.data(), n));
  else if (!(rho >= 0.25))  // also NaN
    delta *= 0.5;
  return accepted;
}

}  // namespace graphopt::vm
