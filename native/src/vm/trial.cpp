#include "vm/trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "linear/dot.h"

namespace graphopt::vm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point& start) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start).count();
  start = now;
  return seconds;
}

// Largest absolute value, NaN if there is a NaN.
double largest(const View<double>& x) {
  double result = 0.0;
  bool is_number = true;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double one = std::fabs(x.data[i]);
    is_number &= one == one;
    result = one > result ? one : result;
  }
  return is_number ? result : std::nan("");
}

}  // namespace

TrialResult try_step(Evaluation& edges, LinearSystem& linear, const TrialSystem& system,
                     const TrialDamping& damping, std::vector<double>& room) {
  TrialResult result;
  const std::int64_t dim = system.b.size();
  const double *b = system.b.data, *dx = system.dx.data, *diagonal = damping.diagonal;
  Clock::time_point start = Clock::now();
  room.resize(static_cast<std::size_t>(dim));
  if (diagonal == nullptr && damping.value != 0.0) {
    std::fill(room.begin(), room.end(), damping.value);
    diagonal = room.data();
  }
  result.solved = linear.factorize(system.values.data, diagonal, b);
  if (result.solved) linear.solve(b, system.dx.data);
  result.solve_seconds = seconds_since(start);
  if (!result.solved) return result;
  result.gain = dot(dx, b, dim);
  if (damping.diagonal == nullptr) {
    result.gain += damping.value * dot(dx, dx, dim);
  } else {
    for (std::int64_t i = 0; i < dim; ++i) room[i] = damping.diagonal[i] * dx[i];
    result.gain += dot(dx, room.data(), dim);
  }
  result.step_size = largest(system.dx);
  start = Clock::now();
  edges.push();
  try {
    edges.oplus(dx, dim);
    result.update_seconds = seconds_since(start);
    const View<double>&values = system.next_values, &next_b = system.next_b;
    result.chi2 = values.data == nullptr
                      ? edges.chi2()
                      : edges.linearize(values.data, values.size(), next_b.data, next_b.size());
  } catch (...) {
    edges.pop();
    throw;
  }
  result.linearize_seconds = seconds_since(start);
  return result;
}

}  // namespace graphopt::vm
