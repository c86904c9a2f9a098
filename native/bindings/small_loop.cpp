// Bindings of the loop for small systems.
#include "vm/small_loop.h"

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>

#include "bound_system.h"
#include "linear/pcg.h"
#include "loop_options.h"
#include "vm/frame_rounds.h"

namespace py = pybind11;
using graphopt::bound_system;
using graphopt::LinearSystem;
using graphopt::PatternOperator;
using namespace graphopt::vm;

namespace {

// The Python objects whose memory a loop uses, and the loop.
struct BoundLoop {
  py::object linearizer, solver, product, values, b, dx, diagonal;
  std::unique_ptr<LinearSystem> linear;
  std::unique_ptr<SmallLoop> loop;
};

template <class T>
View<T> vector_view(const py::object& object, const char* name) {
  using Plain = std::remove_const_t<T>;
  if (!py::isinstance<py::array_t<Plain, py::array::c_style>>(object))
    throw py::value_error(std::string("SmallLoop: ") + name + " has the wrong type");
  const auto array = py::reinterpret_borrow<py::array>(object);
  View<T> v;
  v.data = static_cast<T*>(const_cast<void*>(array.data()));
  v.rows = array.size();
  v.columns = 1;
  return v;
}

std::unique_ptr<BoundLoop> make_loop(const py::object& linearizer, const py::object& solver,
                                     const py::object& product, const py::object& values, const py::object& b,
                                     const py::object& dx, const py::object& diagonal) {
  SmallSystem system;
  system.edges = &linearizer.cast<Linearizer&>();
  system.values = vector_view<double>(values, "values");
  system.b = vector_view<double>(b, "b");
  system.dx = vector_view<double>(dx, "dx");
  system.diagonal = vector_view<const std::int64_t>(diagonal, "diagonal");
  auto linear = std::make_unique<LinearSystem>(bound_system(solver, py::none()));
  system.linear = linear.get();
  if (linear->pattern().values_size() != system.values.size() || linear->pattern().dim() != system.b.size())
    throw py::value_error("SmallLoop: the solver was made for another pattern");
  if (!product.is_none()) {
    PatternOperator& matrix = product.cast<PatternOperator&>();
    system.multiply = [&matrix](const double* h, const double* x, double* y) { matrix.multiply(h, x, y); };
  }
  if (system.b.size() > SmallLoop::kLargestDim)
    throw py::value_error("SmallLoop: b, dx and diagonal must have one length, at most 128");
  auto bound = std::make_unique<BoundLoop>();
  *bound = {linearizer, solver, product, values, b, dx, diagonal, std::move(linear), nullptr};
  bound->loop = std::make_unique<SmallLoop>(std::move(system));
  return bound;
}

// Releases the interpreter lock; `locked` takes it for a moment. A function that throws keeps it.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

  template <class F>
  auto locked(F function) {
    PyEval_RestoreThread(state_);
    state_ = nullptr;
    const auto result = function();
    state_ = PyEval_SaveThread();
    return result;
  }

 private:
  PyThreadState* state_;
};

// action(ask) without the interpreter lock; ask() calls `should_stop`, but not before `patience` seconds have
// passed since the last time.
template <class Action>
auto asking(const py::object& should_stop, double patience, Action action) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now();
  Unlocked unlocked;
  return action([&] {
    if (patience > 0.0) {
      const Clock::time_point now = Clock::now();
      if (std::chrono::duration<double>(now - last).count() < patience) return false;
      last = now;
    }
    return unlocked.locked([&] { return should_stop().is(py::bool_(true)); });
  });
}

template <class Method>
LoopResult run(BoundLoop& bound, Method& method, const py::object& options, const py::object& should_stop,
               double patience) {
  const StopRules rules = rules_of(options);
  return asking(should_stop, patience,
                [&](const ShouldStop& ask) { return bound.loop->run(method, rules, ask); });
}

template <class T>
View<T> writable_view(const py::array& array, const char* name) {
  if (!array.writeable()) throw py::value_error(std::string("SmallLoop: ") + name + " is read-only");
  return vector_view<T>(array, name);
}

// edges: (group, weight, observation) of each group that is judged.
template <class Method>
py::tuple run_rounds_bound(BoundLoop& bound, const Method& method, const py::object& options,
                           const py::object& should_stop, double patience,
                           const std::vector<std::tuple<int, py::array, py::array>>& edges,
                           const std::vector<double>& limits, int rounds, int robust_rounds,
                           std::int64_t min_observations, const py::array& holds, const py::array& inliers,
                           const py::array& chi2) {
  const StopRules rules = rules_of(options);
  RoundRules round_rules{rounds, robust_rounds, min_observations, limits};
  std::vector<JudgedEdges> judged;
  for (const auto& [group, weight, observation] : edges)
    judged.push_back({group, vector_view<const double>(weight, "weight"),
                      vector_view<const std::int32_t>(observation, "observation")});
  const JudgedObservations seen{vector_view<const bool>(holds, "holds"),
                                writable_view<bool>(inliers, "inliers"), writable_view<double>(chi2, "chi2")};
  Linearizer& linearizer = bound.linearizer.cast<Linearizer&>();
  RoundsResult result = asking(should_stop, patience, [&](const ShouldStop& ask) {
    return run_rounds(*bound.loop, linearizer, method, rules, judged, round_rules, seen, ask);
  });
  return py::make_tuple(std::move(result.last), result.rounds);
}

template <class Method, class Class>
void bind_rounds(Class& c) {
  c.def("run_rounds", &run_rounds_bound<Method>, py::arg("method"), py::arg("rules"), py::arg("should_stop"),
        py::arg("patience"), py::arg("edges"), py::arg("limits"), py::arg("rounds"), py::arg("robust_rounds"),
        py::arg("min_observations"), py::arg("holds"), py::arg("inliers"), py::arg("chi2"));
}

py::list steps(const LoopResult& result) {
  py::list list;
  for (const LoopStep& step : result.steps)
    list.append(py::make_tuple(step.chi2, step.has_lambda ? py::object(py::float_(step.lambda)) : py::none(),
                               step.trials, step.seconds));
  return list;
}

const char* ending(const LoopResult& result) {
  switch (result.ending) {
    case LoopEnding::kRules:
      return "";
    case LoopEnding::kConverged:
      return "CONVERGED";
    case LoopEnding::kNoImprovement:
      return "NO_IMPROVEMENT";
    case LoopEnding::kLinearSolverFailure:
      return "LINEAR_SOLVER_FAILURE";
    case LoopEnding::kNonFinite:
      return "NON_FINITE";
  }
  return "";
}

}  // namespace

void bind_small_loop(py::module_& m) {
  py::class_<LoopResult>(m, "LoopResult", "What a loop did.")
      .def_readonly("initial_chi2", &LoopResult::initial_chi2)
      .def_property_readonly("steps", &steps, "(chi2, lambda or None, trials, seconds) per iteration.")
      .def_property_readonly("ending", &ending, "Name of the outcome that ended it, or nothing.")
      .def_readonly("linearize_seconds", &LoopResult::linearize_seconds)
      .def_readonly("solve_seconds", &LoopResult::solve_seconds)
      .def_readonly("update_seconds", &LoopResult::update_seconds);

  py::class_<LoopConstants>(m, "LoopConstants", "Numbers of the algorithms.")
      .def_readonly_static("LEAST_LAMBDA", &LoopConstants::kLeastLambda)
      .def_readonly_static("GAIN_OFFSET", &LoopConstants::kGainOffset)
      .def_readonly_static("MIN_LAMBDA", &LoopConstants::kMinLambda)
      .def_readonly_static("MAX_LAMBDA", &LoopConstants::kMaxLambda)
      .def_readonly_static("LEAST_LINEAR_GAIN", &LoopConstants::kLeastLinearGain)
      .def_readonly_static("PROBES", &LoopConstants::kProbes);
  py::class_<GaussNewton>(m, "GaussNewton", "State of Gauss-Newton.").def(py::init<>());
  py::class_<Levenberg>(m, "Levenberg", "State of Levenberg-Marquardt.")
      .def(py::init([](const py::object& options) {
        Levenberg method;
        method.initial_lambda = options.attr("initial_lambda").cast<double>();
        method.tau = options.attr("tau").cast<double>();
        method.max_trials = options.attr("max_trials").cast<int>();
        method.lower_scale = options.attr("good_step_lower_scale").cast<double>();
        method.upper_scale = options.attr("good_step_upper_scale").cast<double>();
        return method;
      }))
      .def_readwrite("damping", &Levenberg::lambda)
      .def_readwrite("nu", &Levenberg::nu);
  py::class_<Dogleg>(m, "Dogleg", "State of Powell's dogleg.")
      .def(py::init([](const py::object& options) {
        Dogleg method;
        method.max_trials = options.attr("max_trials").cast<int>();
        method.lambda_factor = options.attr("lambda_factor").cast<double>();
        return method;
      }))
      .def_readwrite("delta", &Dogleg::delta)
      .def_readwrite("damping", &Dogleg::lambda)
      .def_readwrite("was_positive_definite", &Dogleg::was_positive_definite);

  py::class_<BoundLoop> loop(m, "SmallLoop", "g2o's algorithms on a small system without Python in between.");
  loop.def(py::init(&make_loop), py::arg("linearizer"), py::arg("solver"), py::arg("product"),
           py::arg("values"), py::arg("b"), py::arg("dx"), py::arg("diagonal"))
      .def("run", &run<GaussNewton>, py::arg("method"), py::arg("rules"), py::arg("should_stop"),
           py::arg("patience"))
      .def("run", &run<Levenberg>, py::arg("method"), py::arg("rules"), py::arg("should_stop"),
           py::arg("patience"))
      .def("run", &run<Dogleg>, py::arg("method"), py::arg("rules"), py::arg("should_stop"),
           py::arg("patience"));
  bind_rounds<GaussNewton>(loop);
  bind_rounds<Levenberg>(loop);
  bind_rounds<Dogleg>(loop);
}
