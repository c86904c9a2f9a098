// Bindings of batches of small problems.
#include "vm/problem_batch.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bound_system.h"
#include "linear/pcg.h"
#include "linear_arrays.h"
#include "loop_options.h"
#include "parallel/thread_pool.h"

namespace py = pybind11;
using namespace graphopt;
using namespace graphopt::vm;

namespace {

// One's own arrays and solvers; the Python objects are kept for their memory.
class BoundWorker {
 public:
  BoundWorker(const py::object& linearizer, const py::object& schur, const py::object& solver,
              const py::object& values, const py::object& b, const py::object& dx, const py::object& diagonal)
      : kept_{linearizer, schur, solver, values, b, dx, diagonal}, linear_(bound_system(solver, schur)) {
    const BlockPattern& pattern = linear_.pattern();
    SmallSystem system;
    const std::int64_t dim = pattern.dim();
    system.linear = &linear_;
    system.values = {vector_data(values, "values", pattern.values_size(), true, false), pattern.values_size(),
                     1, nullptr};
    system.b = {vector_data(b, "b", dim, true, false), dim, 1, nullptr};
    system.dx = {vector_data(dx, "dx", dim, true, false), dim, 1, nullptr};
    const auto indices = py::array_t<std::int64_t, py::array::c_style>::ensure(diagonal);
    if (!indices || indices.size() != dim) throw_shape("diagonal", "one index per scalar", diagonal);
    diagonal_.assign(indices.data(), indices.data() + dim);
    system.diagonal = {diagonal_.data(), dim, 1, nullptr};
    const auto product = std::make_shared<PatternOperator>(
        std::shared_ptr<const BlockPattern>(std::shared_ptr<void>(), &pattern));  // `kept_` has its owner
    system.multiply = [product](const double* h, const double* x, double* y) { product->multiply(h, x, y); };
    worker_ = std::make_unique<BatchWorker>(linearizer.cast<Linearizer&>(), std::move(system));
  }

  BatchWorker& worker() { return *worker_; }

 private:
  const std::vector<py::object> kept_;
  LinearSystem linear_;
  std::vector<std::int64_t> diagonal_;
  std::unique_ptr<BatchWorker> worker_;
};

// An array (count or 1, ...) of problems.
template <class T>
PerProblem<T> per_problem(const py::object& object, std::int64_t count, const char* name) {
  using Plain = std::remove_const_t<T>;
  if (object.is_none()) return {};
  using Exact = py::array_t<Plain, py::array::c_style>;
  if (!Exact::check_(object)) throw_shape(name, "a contiguous array", object);
  const auto array = py::reinterpret_borrow<py::array>(object);
  const bool is_shared = std::is_const_v<T> && array.ndim() > 0 && array.shape(0) == 1;
  if (array.ndim() < 1 || (array.shape(0) != count && !is_shared))
    throw_shape(name, std::to_string(count) + " rows", object);
  if (!std::is_const_v<T> && !array.writeable()) throw_shape(name, "a writeable array", object);
  return {static_cast<T*>(const_cast<void*>(array.data())), is_shared ? 0 : array.size() / array.shape(0)};
}

using Sets = std::vector<std::pair<int, py::object>>;
using Groups = std::vector<std::tuple<int, py::object, py::object, py::object, py::object>>;

// outcome: initial chi2, chi2, lambda (count) float64; iterations, trials int32; ending int8; covariances or
// None.
using Outcome =
    std::tuple<py::object, py::object, py::object, py::object, py::object, py::object, py::object>;

template <class Method>
bool run(const std::vector<BoundWorker*>& workers, const Method& method, const py::object& options,
         std::int64_t count, const Sets& estimates, const Sets& parameters, const Groups& groups,
         const py::object& unobserved, const std::vector<std::pair<std::int64_t, int>>& covariances,
         const Outcome& arrays) {
  if (workers.empty() || count < 1) throw py::value_error("run_batch: no workers, or no problems");
  BatchProblems problems;
  problems.count = count;
  for (const auto& [set, array] : estimates)
    problems.estimates.emplace_back(
        set, py::reinterpret_borrow<py::array>(array).writeable()
                 ? per_problem<double>(array, count, "estimates")
                 : [&] {
                     const auto read = per_problem<const double>(array, count, "estimates");
                     return PerProblem<double>{const_cast<double*>(read.data), read.stride};
                   }());
  for (const auto& [set, array] : parameters)
    problems.parameters.emplace_back(set, per_problem<const double>(array, count, "parameters"));
  for (const auto& [number, measurement, information, width, mask] : groups)
    problems.groups.push_back({number, per_problem<const double>(measurement, count, "measurement"),
                               per_problem<const double>(information, count, "information"),
                               per_problem<const double>(width, count, "kernel_width"),
                               per_problem<const bool>(mask, count, "mask")});
  problems.unobserved = per_problem<const bool>(unobserved, count, "unobserved");
  problems.covariances = covariances;
  const auto& [initial, chi2, lambda, iterations, trials, ending, blocks] = arrays;
  BatchOutcome outcome{per_problem<double>(initial, count, "initial_chi2").data,
                       per_problem<double>(chi2, count, "chi2").data,
                       per_problem<double>(lambda, count, "lambda").data,
                       per_problem<double>(blocks, count, "covariances").data,
                       per_problem<std::int32_t>(iterations, count, "iterations").data,
                       per_problem<std::int32_t>(trials, count, "trials").data,
                       per_problem<std::int8_t>(ending, count, "ending").data};
  std::vector<BatchWorker*> chosen;
  for (BoundWorker* const worker : workers) chosen.push_back(&worker->worker());
  const StopRules rules = rules_of(options);
  const py::gil_scoped_release release;
  return run_batch(chosen, method, rules, problems, outcome);
}

template <class Method>
void bind_run(py::module_& m) {
  m.def("run_batch", &run<Method>, py::arg("workers"), py::arg("method"), py::arg("rules"), py::arg("count"),
        py::arg("estimates"), py::arg("parameters"), py::arg("groups"), py::arg("unobserved"),
        py::arg("covariances"), py::arg("outcome"));
}

// `with`: see ThreadPool::Alone.
class BoundAlone {
 public:
  void enter() { alone_ = std::make_unique<ThreadPool::Alone>(); }
  void exit(const py::args&) { alone_.reset(); }

 private:
  std::unique_ptr<ThreadPool::Alone> alone_;
};

}  // namespace

void bind_problem_batch(py::module_& m) {
  py::class_<BoundWorker>(m, "BatchWorker", "Optimizes one problem of a batch after the other.")
      .def(py::init<py::object, py::object, py::object, py::object, py::object, py::object, py::object>(),
           py::arg("linearizer"), py::arg("schur"), py::arg("solver"), py::arg("values"), py::arg("b"),
           py::arg("dx"), py::arg("diagonal"));
  bind_run<GaussNewton>(m);
  bind_run<Levenberg>(m);
  bind_run<Dogleg>(m);
  py::class_<BoundAlone>(m, "Alone", "Within a `with`, parallel regions of this thread are its own alone.")
      .def(py::init<>())
      .def("__enter__", &BoundAlone::enter)
      .def("__exit__", &BoundAlone::exit);
}
