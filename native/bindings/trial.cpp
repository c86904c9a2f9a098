// Bindings of a damped step in one call.
#include "vm/trial.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bound_system.h"
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

// The Python objects that steps need, and the sizes of their arrays.
class Trials {
 public:
  Trials(py::object linearizer, py::object schur, py::object solver)
      : linearizer_(std::move(linearizer)),
        schur_(std::move(schur)),
        solver_(std::move(solver)),
        linear_(bound_system(solver_, schur_)) {}

  py::tuple run(const py::object& values, const py::object& damping, const py::object& b,
                const py::object& dx, const py::object& next) {
    const std::int64_t values_size = linear_.pattern().values_size(), dim = linear_.pattern().dim();
    TrialSystem system{vector_view(values, "values", values_size),
                       vector_view(b, "b", dim),
                       vector_view(dx, "dx", dim),
                       {},
                       {}};
    if (!next.is_none()) {
      const auto pair = next.cast<std::pair<py::object, py::object>>();
      system.next_values = vector_view(pair.first, "values of next", values_size);
      system.next_b = vector_view(pair.second, "b of next", dim);
    }
    TrialDamping d;
    if (py::isinstance<py::array>(damping) && py::reinterpret_borrow<py::array>(damping).ndim() > 0)
      d.diagonal = input(damping, "damping", dim);
    else
      d.value = damping.cast<double>();
    Evaluation& edges = linearizer_.cast<Linearizer&>();
    TrialResult found;
    {
      const py::gil_scoped_release release;
      found = try_step(edges, linear_, system, d, room_);
    }
    return py::make_tuple(found.solved, found.chi2, found.gain, found.step_size, found.solve_seconds,
                          found.update_seconds, found.linearize_seconds);
  }

 private:
  py::object linearizer_, schur_, solver_;
  LinearSystem linear_;
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
