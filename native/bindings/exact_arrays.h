// numpy arrays in and out of bindings without a copy: their type and shape are checked, not converted.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "parallel/plain_array.h"

namespace graphopt::bindings {

namespace py = pybind11;

inline void require(bool condition, const char* what) {
  if (!condition) throw py::value_error(what);
}

template <class T>
using ExactArray = py::array_t<T, py::array::c_style>;

template <class T>
ExactArray<T> exact(const py::handle& object, const std::string& name, py::ssize_t ndim) {
  if (!py::isinstance<ExactArray<T>>(object))
    throw py::value_error(name + " must be a C-contiguous array of " +
                          std::string(py::str(py::dtype::of<T>())));
  auto array = py::reinterpret_borrow<ExactArray<T>>(object);
  if (array.ndim() != ndim) throw py::value_error(name + " has the wrong number of dimensions");
  return array;
}

// A copy as an array. pybind11's own constructor overlooks that the copy got no memory.
template <class T>
ExactArray<T> copied(const std::vector<T>& values) {
  ExactArray<T> array(static_cast<py::ssize_t>(values.size()));
  std::copy(values.begin(), values.end(), array.mutable_data());
  return array;
}

// Hand a vector over to numpy without a copy.
template <class T>
py::array as_array(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  py::capsule owner(kept, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

template <class T>
py::array as_array(PlainArray<T>&& values) {
  const auto size = static_cast<py::ssize_t>(values.size());
  T* const data = values.release();
  py::capsule owner(data, [](void* p) { std::free(p); });
  return py::array_t<T>(size, data, owner);
}

}  // namespace graphopt::bindings
