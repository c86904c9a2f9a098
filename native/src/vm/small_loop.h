// Whole optimizations of small systems: the iterations of g2o's algorithms without Python between them.
//
// Formulas and their order are those of graphopt/optimizer/{levenberg_marquardt,gauss_newton,dogleg}.py, and
// sums are numpy's, so both give the same digits; tests compare them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "linear/linear_system.h"
#include "vm/linearizer.h"

namespace graphopt::vm {

// What the loop works on: the arrays belong to a block solver.
struct SmallSystem {
  Evaluation* edges = nullptr;
  LinearSystem* linear = nullptr;
  std::function<void(const double* values, const double* x, double* y)> multiply;  // only for dogleg
  View<double> values, b, dx;
  View<const std::int64_t> diagonal;  // of H, in values
  bool is_timed = true;               // else the seconds of results are 0
};

// Numbers of the algorithms that the loops in Python and on devices take from here.
struct LoopConstants {
  static constexpr double kLeastLambda = 1e-16;  // Levenberg-Marquardt: times H's largest diagonal entry
  static constexpr double kGainOffset = 1e-3;    // g2o's: a predicted decrease is never zero
  static constexpr double kMinLambda = 1e-12;    // dogleg: g2o's minLambda,
  static constexpr double kMaxLambda = 1e3;      // maxLambda, or H's largest diagonal entry if that is more,
  static constexpr double kLeastLinearGain = 1e-12;  // and what it divides by at least
  static constexpr std::array<double, 4> kProbes{1e-16, 1e-14, 1e-12,
                                                 1e-10};  // times diag(H): a step hardly damped
};

struct StopRules {
  int max_iterations = 10;
  double function_tolerance = 0.0, gradient_tolerance = 0.0, step_tolerance = 0.0;
};

enum class LoopEnding { kRules, kConverged, kNoImprovement, kLinearSolverFailure, kNonFinite };

// One iteration; the names are those of optimizer/algorithm.py.
struct LoopStep {
  LoopEnding outcome = LoopEnding::kRules;
  double chi2 = 0.0;
  double lambda = 0.0;
  bool has_lambda = false;
  int trials = 1;
  double step_size = 0.0;  // infinite if no step was accepted
  double seconds = 0.0;
};

struct LoopResult {
  double initial_chi2 = 0.0;
  LoopEnding ending = LoopEnding::kRules;  // kRules: the last iteration, or asked to stop
  std::vector<LoopStep> steps;
  double linearize_seconds = 0.0, solve_seconds = 0.0, update_seconds = 0.0;
};

using ShouldStop = std::function<bool()>;
using AfterStep = std::function<bool(int number, const LoopStep&)>;  // false: stop

class SmallLoop;

struct GaussNewton {
  bool loosen(SmallLoop&, double) { return false; }  // its steps are never held back
  LoopStep step(SmallLoop& loop, int iteration, const ShouldStop& should_stop);
  double chi2 = 0.0;
};

struct Levenberg {
  // After an end by a small decrease of chi2: whether a step that damping hardly holds back promises more
  // than `tolerance` of it. The next run then starts with such a damping.
  bool loosen(SmallLoop& loop, double tolerance);
  double initial_lambda = 0.0, tau = 1e-5;
  int max_trials = 10;
  double lower_scale = 1.0 / 3.0, upper_scale = 2.0 / 3.0;
  double lambda = 0.0, nu = 2.0;
  double chi2 = 0.0;
  LoopStep step(SmallLoop& loop, int iteration, const ShouldStop& should_stop);

 private:
  double trial(SmallLoop& loop, double& current);
  void reject();
};

struct Dogleg {
  bool loosen(SmallLoop& loop, double tolerance);  // as Levenberg's: back to the first radius
  int max_trials = 100;
  double lambda_factor = 10.0, initial_delta = 1e4;
  double delta = initial_delta, lambda = 1e-7;
  bool was_positive_definite = true;
  double chi2 = 0.0;
  LoopStep step(SmallLoop& loop, int iteration, const ShouldStop& should_stop);

 private:
  bool solve_gauss_newton(SmallLoop& loop);
  bool trial(SmallLoop& loop, const std::vector<double>& step, double& current);
};

class SmallLoop {
 public:
  // Beyond, numpy sums vectors in another order: the last digits differ from those of the Python loop.
  static constexpr std::int64_t kLargestDim = 128;

  explicit SmallLoop(SmallSystem system);

  template <class Method>
  LoopResult run(Method& method, const StopRules& rules, const ShouldStop& should_stop,
                 const AfterStep& after = {});

  // The same, and on from an end where damping may be what made the last decrease small: `loosen` of the
  // method. The next such end holds unless chi2 has fallen by more than the tolerance in between. The result
  // has the steps of all.
  template <class Method>
  LoopResult run_to_end(Method& method, StopRules rules, const ShouldStop& should_stop,
                        const AfterStep& after = {});

 private:
  friend struct GaussNewton;
  friend struct Levenberg;
  friend struct Dogleg;

  double linearize();
  double chi2();
  bool solve(double damping);
  bool solve_damped();  // by damping_
  double largest_diagonal() const;
  double promise();
  void update();
  void multiply(const double* x, double* y);
  bool converged(const LoopStep& step, double before, const StopRules& rules) const;

  SmallSystem system_;
  std::int64_t dim_ = 0;
  std::vector<double> damping_;
  LoopResult* result_ = nullptr;
  bool is_linearized_ = false;  // H and b are those of initial_chi2, which no step has asked for yet
};

}  // namespace graphopt::vm
