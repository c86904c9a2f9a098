// Checked access to numpy arrays for the bindings of the linear algebra.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "linear/errors.h"

namespace graphopt {

namespace py = pybind11;

using Array = py::array_t<double, py::array::c_style>;

inline std::string describe(const py::handle& object) {
  if (!py::isinstance<py::array>(object)) return std::string(py::str(py::type::of(object).attr("__name__")));
  const py::array array = py::reinterpret_borrow<py::array>(object);
  return std::string(py::str(array.dtype())) + " array of shape " +
         std::string(py::str(array.attr("shape"))) +
         ((array.flags() & py::array::c_style) ? "" : " (not contiguous)");
}

[[noreturn]] inline void throw_shape(const char* name, const std::string& expected,
                                     const py::handle& object) {
  throw LinearShapeError(std::string(name) + ": expected " + expected + ", got " + describe(object) + ".");
}

// Data of a contiguous float64 vector of `size`; nullptr for None if that is allowed.
inline double* vector_data(const py::object& object, const char* name, std::int64_t size, bool writeable,
                           bool optional) {
  if (optional && object.is_none()) return nullptr;
  if (Array::check_(object)) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    if (array.ndim() == 1 && array.shape(0) == size && (!writeable || array.writeable())) {
      return const_cast<double*>(static_cast<const double*>(array.data()));
    }
  }
  throw_shape(name,
              std::string(writeable ? "a writeable" : "a") + " contiguous float64 array of shape (" +
                  std::to_string(size) + ",)" + (optional ? " or None" : ""),
              object);
}

inline const double* input(const py::object& object, const char* name, std::int64_t size) {
  return vector_data(object, name, size, false, false);
}

inline const double* optional_input(const py::object& object, const char* name, std::int64_t size) {
  return vector_data(object, name, size, false, true);
}

template <class T>
py::array view_of(const std::vector<T>& values, py::handle base) {
  py::array array(py::dtype::of<T>(), {values.size()}, {sizeof(T)}, values.data(), base);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

// A sequence or array of integers, checked to fit into T.
template <class T>
std::vector<T> vector_of(const py::object& object, const char* name) {
  const py::array array = py::array::ensure(object);
  const bool integral =
      array && (array.dtype().kind() == 'i' || array.dtype().kind() == 'u' || array.size() == 0);
  if (!integral || array.ndim() != 1) {
    PyErr_Clear();
    throw_shape(name, "a vector of integers", object);
  }
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  std::vector<T> result(static_cast<std::size_t>(wide.size()));
  for (py::ssize_t i = 0; i < wide.size(); ++i) {
    result[i] = static_cast<T>(wide.data()[i]);
    if (result[i] == wide.data()[i]) continue;
    throw LinearShapeError(std::string(name) + "[" + std::to_string(i) + "] is " +
                           std::to_string(wide.data()[i]) + ", which does not fit into a 32-bit integer.");
  }
  return result;
}

}  // namespace graphopt
