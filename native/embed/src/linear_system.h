// (H + D) dx = b: a linear solver, with or without the Schur complement. What is left open is decided as in
// graphopt/linear/systems.py.
#pragma once

#include "linear/linear_system.h"
#include "problem.h"

namespace graphopt::embed {

struct ChosenSystem {
  LinearSystem system;
  int linear_solver, schur;  // what was taken
};

// linear_solver, schur: graphopt_linear_solver, graphopt_schur.
ChosenSystem make_system(const Problem& problem, int linear_solver, int schur);

}  // namespace graphopt::embed
