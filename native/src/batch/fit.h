// Levenberg-Marquardt for every parameter set of every expression.
//
//   minimise F(p) = sum_i (f(x_i, p) - y_i)^2,     (J'J + lambda D) d = -J'r,     D = largest diag(J'J) so
//   far
//
// The damping follows Madsen, Nielsen and Tingleff (Methods for non-linear least squares problems, 2004); the
// scale D and the tests of convergence follow MINPACK (More, 1978).
#pragma once

#include <cstdint>

#include "batch/evaluate.h"

namespace graphopt::batch {

enum class FitStatus : std::int8_t {
  kConverged = 0,
  kMaxIterations = 1,
  kNonFinite = 2,   // a value or derivative at the start is not finite
  kNoDecrease = 3,  // no step leads to a smaller, finite sum
};

struct FitOptions {
  int max_num_iterations = 100;      // evaluations of values and derivatives after the first
  double function_tolerance = 1e-8;  // relative decrease of F
  double parameter_tolerance = 1e-8;
  double gradient_tolerance = 1e-8;  // cosine between r and a column of J
};

// Results of one expression, an entry per parameter set.
struct FitResult {
  double* parameters = nullptr;  // (num_sets, stride), of which the first are set
  std::int64_t stride = 0;
  double* sums = nullptr;  // F
  std::int8_t* status = nullptr;
  std::int32_t* iterations = nullptr;
};

// codes[e]: outputs are the value and its derivatives by all parameters.
template <class T>
void fit(const std::vector<Compiled>& codes, const Points<T>& points, const std::vector<Parameters>& starts,
         const FitOptions& options, const std::vector<FitResult>& results);

}  // namespace graphopt::batch
