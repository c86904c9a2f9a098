// (H + D) dx = b: a linear solver, with or without the Schur complement. What is left open is decided as in
// graphopt/linear/systems.py.
#pragma once

#include <memory>

#include "problem.h"

namespace graphopt::embed {

class LinearSystem {
 public:
  virtual ~LinearSystem() = default;
  // damping (dim) or null; b is only read where landmarks are eliminated. False: not positive definite.
  virtual bool factorize(const double* values, const double* damping, const double* b) = 0;
  virtual void solve(const double* b, double* dx) = 0;

  int linear_solver = GRAPHOPT_CHOLESKY, schur = GRAPHOPT_SCHUR_OFF;  // what was taken
};

// linear_solver, schur: graphopt_linear_solver, graphopt_schur.
std::unique_ptr<LinearSystem> make_system(const Problem& problem, int linear_solver, int schur);

}  // namespace graphopt::embed
