// Errors of the linear algebra; the bindings turn them into graphopt.errors classes.
#pragma once

#include <stdexcept>
#include <string>

namespace graphopt {

// An array or a pattern has the wrong shape or content.
struct LinearShapeError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A method was called before the one it builds on (solve before factorize, ...).
struct LinearStateError : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace graphopt
