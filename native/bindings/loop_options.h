// Options of the native loops as Python has them.
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

}  // namespace graphopt::vm
