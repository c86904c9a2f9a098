// Watches of Python's threads: native loops ask Python now and then whether to stop.
#include "parallel/stopping.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <optional>

#include "parallel/call_mutex.h"

namespace py = pybind11;
using namespace graphopt;

namespace {

// A watch that asks a Python function. What the function raises ends the native call and is raised from it.
class PythonWatch {
 public:
  PythonWatch(py::object ask, double period) : ask_(std::move(ask)), period_(period) {}
  ~PythonWatch() { end(); }

  void begin() {
    end();
    watch_.emplace([this] { return answer(); }, period_);
    previous_ = Watch::current();
    previous_python_ = current;
    Watch::make_current(&*watch_);
    current = this;
  }

  void end() {
    if (current != this) return;
    Watch::make_current(previous_);
    current = previous_python_;
  }

  void raise_error() {
    if (!error_) return;
    std::exception_ptr error;
    std::swap(error, error_);
    std::rethrow_exception(error);
  }

  static thread_local PythonWatch* current;

 private:
  bool answer() {
    const py::gil_scoped_acquire gil;
    try {
      return ask_().is(py::bool_(true));
    } catch (...) {
      error_ = std::current_exception();
      return true;
    }
  }

  const py::object ask_;
  const double period_;
  std::optional<Watch> watch_;
  Watch* previous_ = nullptr;
  PythonWatch* previous_python_ = nullptr;
  std::exception_ptr error_;
};

thread_local PythonWatch* PythonWatch::current = nullptr;

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Stopped& e) {
    try {
      if (PythonWatch::current != nullptr) PythonWatch::current->raise_error();
    } catch (py::error_already_set& raised) {
      raised.restore();
      return;
    }
    PyErr_SetString(py::module_::import("graphopt.errors").attr("Stopped").ptr(), e.what());
  }
}

}  // namespace

void bind_stopping(py::module_& m) {
  py::register_local_exception_translator(&translate);
  py::class_<PythonWatch>(m, "Watch")
      .def(py::init<py::object, double>(), py::arg("ask"), py::arg("period"))
      .def("begin", &PythonWatch::begin)
      .def("end", &PythonWatch::end);
  m.def("check_stop", &throw_if_stopped);
}
