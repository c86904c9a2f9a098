// What bindings of the native loops share: options as Python has them, and systems that a factorization
// solves.
#pragma once

#include <pybind11/pybind11.h>

#include "vm/small_loop.h"

namespace graphopt::vm {

inline StopRules rules_of(const pybind11::object& options) {
  StopRules rules;
  rules.max_iterations = options.attr("max_iterations").cast<int>();
  rules.function_tolerance = options.attr("function_tolerance").cast<double>();
  rules.gradient_tolerance = options.attr("gradient_tolerance").cast<double>();
  rules.step_tolerance = options.attr("step_tolerance").cast<double>();
  return rules;
}

// direct: a dense or sparse Cholesky factorization of all of H, which the caller keeps.
template <class Direct>
void use_direct(SmallSystem& system, Direct& direct) {
  system.factorize = [&direct](const double* h, const double* damping) {
    return direct.factorize(h, damping);
  };
  system.substitute = [&direct](const double* b, double* x) { direct.solve(b, x); };
}

}  // namespace graphopt::vm
