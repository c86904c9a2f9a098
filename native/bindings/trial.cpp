// Bindings of a damped step in one call.
#include "vm/trial.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "bound_schur.h"
#include "linear/dense_cholesky.h"
#include "linear/sparse_cholesky.h"
#include "linear_arrays.h"

namespace py = pybind11;
using namespace graphopt;
using namespace graphopt::vm;

namespace {

View<double> vector_view(const py::object& object, const char* name, std::int64_t size) {
  View<double> view;
  view.data = vector_data(object, name, size, true, false);
  view.rows = size;
  view.columns = 1;
  return view;
}

template <class Direct>
DampedSolve solve_by(Direct& direct, SchurComplement* schur) {
  if (schur == nullptr)
    return [&direct](const double* values, const double* damping, const double* b, double* dx) {
      if (!direct.factorize(values, damping)) return false;
      direct.solve(b, dx);
      return true;
    };
  auto kept = std::make_shared<std::vector<double>>(static_cast<std::size_t>(schur->kept_dim()));
  return [&direct, schur, kept](const double* values, const double* damping, const double* b, double* dx) {
    if (!schur->form(values, damping, b) || !direct.factorize(schur->reduced_values().data(), nullptr))
      return false;
    direct.solve(schur->reduced_b().data(), kept->data());
    schur->back_substitute(kept->data(), dx);
    return true;
  };
}

// The Python objects that steps need, and the sizes of their arrays.
class Trials {
 public:
  Trials(py::object linearizer, py::object schur, py::object solver)
      : linearizer_(std::move(linearizer)), schur_(std::move(schur)), solver_(std::move(solver)) {
    SchurComplement* const eliminates = schur_.is_none() ? nullptr : schur_.cast<BoundSchur&>().schur.get();
    if (py::isinstance<DenseCholesky>(solver_))
      use(solver_.cast<DenseCholesky&>(), eliminates);
    else
      use(solver_.cast<SparseCholesky&>(), eliminates);
  }

  py::tuple run(const py::object& values, const py::object& damping, const py::object& b,
                const py::object& dx, const py::object& next) {
    TrialSystem system{vector_view(values, "values", values_size_),
                       vector_view(b, "b", dim_),
                       vector_view(dx, "dx", dim_),
                       {},
                       {}};
    if (!next.is_none()) {
      const auto pair = next.cast<std::pair<py::object, py::object>>();
      system.next_values = vector_view(pair.first, "values of next", values_size_);
      system.next_b = vector_view(pair.second, "b of next", dim_);
    }
    TrialDamping d;
    if (py::isinstance<py::array>(damping) && py::reinterpret_borrow<py::array>(damping).ndim() > 0)
      d.diagonal = input(damping, "damping", dim_);
    else
      d.value = damping.cast<double>();
    Evaluation& edges = linearizer_.cast<Linearizer&>();
    TrialResult found;
    {
      const py::gil_scoped_release release;
      found = try_step(edges, solve_, system, d, room_);
    }
    return py::make_tuple(found.solved, found.chi2, found.gain, found.step_size, found.solve_seconds,
                          found.update_seconds, found.linearize_seconds);
  }

 private:
  template <class Direct>
  void use(Direct& direct, SchurComplement* schur) {
    const BlockPattern& pattern = schur == nullptr ? direct.pattern() : schur->pattern();
    if (schur != nullptr && &direct.pattern() != schur->reduced_pattern().get())
      throw LinearShapeError("Trials: the solver was made for another pattern than the Schur complement's.");
    values_size_ = pattern.values_size();
    dim_ = pattern.dim();
    solve_ = solve_by(direct, schur);
  }

  py::object linearizer_, schur_, solver_;
  DampedSolve solve_;
  std::int64_t values_size_ = 0, dim_ = 0;
  std::vector<double> room_;
};

}  // namespace

void bind_trial(py::module_& m) {
  py::class_<Trials>(m, "Trials", "Damped steps of a linearizer, solved by a factorization.")
      .def(py::init<py::object, py::object, py::object>(), py::arg("linearizer"), py::arg("schur"),
           py::arg("solver"), "schur: a SchurComplement whose reduced pattern is the solver's, or None.")
      .def("run", &Trials::run, py::arg("values"), py::arg("damping"), py::arg("b"), py::arg("dx"),
           py::arg("next"),
           "Solve, push, update by dx, chi2. damping: a number or (dim,). next: (values, b) that get H and b "
           "at the new estimates, or None. Returns (solved, chi2, gain, step size, seconds of solve, update "
           "and chi2).");
}
