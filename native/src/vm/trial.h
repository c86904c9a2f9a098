// One damped step and what it finds, without Python between its parts:
//
//   (H + D) dx = b,   estimates <- estimates oplus dx,   chi2 there,   gain = dx' (D dx + b)
#pragma once

#include <vector>

#include "linear/linear_system.h"
#include "vm/linearizer.h"

namespace graphopt::vm {

struct TrialSystem {
  View<double> values, b, dx;
  View<double> next_values, next_b;  // where H and b at the new estimates go; empty: only chi2 is wanted
};

// D: a number, or if there is one an array (dim).
struct TrialDamping {
  double value = 0.0;
  const double* diagonal = nullptr;
};

struct TrialResult {
  bool solved = false;  // if not, nothing was moved or pushed
  double chi2 = 0.0, gain = 0.0;
  double step_size = 0.0;  // largest absolute entry of dx
  double solve_seconds = 0.0, update_seconds = 0.0, linearize_seconds = 0.0;
};

// The estimates before the step are on the stack of `edges` afterwards. If chi2 throws, the step is taken
// back. room: for numbers of a vector, kept between calls.
TrialResult try_step(Evaluation& edges, LinearSystem& linear, const TrialSystem& system,
                     const TrialDamping& damping, std::vector<double>& room);

}  // namespace graphopt::vm
