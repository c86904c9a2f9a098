// The Schur complement as Python holds it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "linear/schur_complement.h"
#include "linear_arrays.h"

namespace graphopt {

// A Schur complement and the arrays it refers to.
struct BoundSchur {
  std::shared_ptr<SchurComplement> schur;
  py::object values, damping, b;

  bool form(const py::object& new_values, const py::object& new_damping, const py::object& new_b) {
    const BlockPattern& pattern = schur->pattern();
    const double* v = input(new_values, "values", pattern.values_size());
    const double* d = optional_input(new_damping, "damping", pattern.dim());
    const double* right = input(new_b, "b", pattern.dim());
    values = new_values;
    damping = new_damping;
    b = new_b;
    py::gil_scoped_release release;
    return schur->form(v, d, right);
  }

  void reduce(const py::object& new_b) {
    const double* right = input(new_b, "b", schur->pattern().dim());
    b = new_b;
    py::gil_scoped_release release;
    schur->reduce(right);
  }

  // A method (in, out) of the Schur complement on vectors.
  template <class Call>
  py::object apply(const py::object& x, const char* name, std::int64_t in_dim, const py::object& out,
                   std::int64_t out_dim, const Call& call) {
    const double* source = input(x, name, in_dim);
    py::object result = out.is_none() ? py::object(Array(out_dim)) : out;
    double* target = vector_data(result, "out", out_dim, true, false);
    py::gil_scoped_release release;
    call(source, target);
    return result;
  }
};

}  // namespace graphopt
