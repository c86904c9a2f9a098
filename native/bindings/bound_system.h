// A linear system of the objects that Python has.
#pragma once

#include <memory>

#include "bound_schur.h"
#include "linear/linear_system.h"

namespace graphopt {

// solver: a LinearSolver, of the reduced pattern of `schur` (a SchurComplement) if that is not None. The
// caller keeps both.
inline LinearSystem bound_system(const py::object& solver, const py::object& schur) {
  auto& direct = solver.cast<LinearSolver&>();
  const std::shared_ptr<LinearSolver> unowned(std::shared_ptr<void>(), &direct);
  if (schur.is_none()) return LinearSystem(unowned);
  const std::shared_ptr<SchurComplement>& reduced = schur.cast<BoundSchur&>().schur;
  if (&direct.pattern() != reduced->reduced_pattern().get())
    throw LinearShapeError("The solver was made for another pattern than the Schur complement's.");
  return LinearSystem(unowned, reduced);
}

}  // namespace graphopt
