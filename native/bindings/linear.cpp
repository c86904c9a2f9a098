// Block linear algebra: patterns, direct solvers. Arrays are checked here, once, with messages that name them;
// long calls run without the GIL.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "linear/block_pattern.h"
#include "linear/dense_cholesky.h"
#include "linear/errors.h"
#include "linear/sparse_cholesky.h"

namespace py = pybind11;
using namespace graphopt;

namespace {

using Array = py::array_t<double, py::array::c_style>;

std::string describe(const py::handle& object) {
  if (!py::isinstance<py::array>(object)) return std::string(py::str(py::type::of(object).attr("__name__")));
  const py::array array = py::reinterpret_borrow<py::array>(object);
  return std::string(py::str(array.dtype())) + " array of shape " + std::string(py::str(array.attr("shape"))) +
         ((array.flags() & py::array::c_style) ? "" : " (not contiguous)");
}

[[noreturn]] void throw_shape(const char* name, const std::string& expected, const py::handle& object) {
  throw LinearShapeError(std::string(name) + ": expected " + expected + ", got " + describe(object) + ".");
}

// Data of a contiguous float64 vector of `size`; nullptr for None if that is allowed.
double* vector_data(const py::object& object, const char* name, std::int64_t size, bool writeable, bool optional) {
  if (optional && object.is_none()) return nullptr;
  if (Array::check_(object)) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    if (array.ndim() == 1 && array.shape(0) == size && (!writeable || array.writeable())) {
      return const_cast<double*>(static_cast<const double*>(array.data()));
    }
  }
  throw_shape(name, std::string(writeable ? "a writeable" : "a") + " contiguous float64 array of shape (" +
                        std::to_string(size) + ",)" + (optional ? " or None" : ""), object);
}

const double* input(const py::object& object, const char* name, std::int64_t size) {
  return vector_data(object, name, size, false, false);
}

const double* optional_input(const py::object& object, const char* name, std::int64_t size) {
  return vector_data(object, name, size, false, true);
}

template <class T>
py::array view_of(const std::vector<T>& values, py::handle base) {
  py::array array(py::dtype::of<T>(), {values.size()}, {sizeof(T)}, values.data(), base);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

template <class T>
std::vector<T> vector_of(const py::object& object, const char* name) {
  const auto array = py::array_t<T, py::array::c_style>::ensure(object);
  const bool integral = py::isinstance<py::array>(object)
                            ? std::string("iu").find(py::reinterpret_borrow<py::array>(object).dtype().kind()) != std::string::npos ||
                                  py::reinterpret_borrow<py::array>(object).size() == 0
                            : true;
  if (!array || array.ndim() != 1 || !integral) {
    PyErr_Clear();
    throw_shape(name, "a vector of integers", object);
  }
  return std::vector<T>(array.data(), array.data() + array.size());
}

// Right sides: (dim,), or (dim, k) for several.
template <class Solver>
py::object solve(Solver& solver, const py::object& b, const py::object& out) {
  const std::int64_t dim = solver.pattern().dim();
  if (Array::check_(b) && py::reinterpret_borrow<py::array>(b).ndim() == 2) {
    const auto sides = py::array_t<double, py::array::f_style | py::array::forcecast>::ensure(b);
    if (!sides || sides.shape(0) != dim) throw_shape("b", "shape (" + std::to_string(dim) + ",) or (" + std::to_string(dim) + ", k)", b);
    if (!out.is_none()) throw LinearShapeError("out: only for one right side, b has shape (dim, k).");
    const std::int64_t num = sides.shape(1);
    py::array_t<double, py::array::f_style> result({dim, num});
    double* x = result.mutable_data();
    const double* source = sides.data();
    {
      py::gil_scoped_release release;
      for (std::int64_t k = 0; k < num; ++k) solver.solve(source + k * dim, x + k * dim);
    }
    return result;
  }
  const double* source = input(b, "b", dim);
  py::object result = out.is_none() ? py::object(Array(dim)) : out;
  double* x = vector_data(result, "out", dim, true, false);
  {
    py::gil_scoped_release release;
    solver.solve(source, x);
  }
  return result;
}

template <class Solver>
bool factorize(Solver& solver, const py::object& values, const py::object& damping) {
  const double* v = input(values, "values", solver.pattern().values_size());
  const double* d = optional_input(damping, "damping", solver.pattern().dim());
  py::gil_scoped_release release;
  return solver.factorize(v, d);
}

template <class Solver>
py::list marginals(Solver& solver, const py::object& pairs) {
  const auto array = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>::ensure(pairs);
  if (!array || ((array.ndim() != 2 || array.shape(1) != 2) && array.size() != 0)) {
    PyErr_Clear();
    throw_shape("block_pairs", "integers of shape (n, 2)", pairs);
  }
  const BlockPattern& pattern = solver.pattern();
  const py::ssize_t num = array.size() / 2;
  std::vector<std::int32_t> rows(num), cols(num);
  std::int64_t size = 0;
  for (py::ssize_t k = 0; k < num; ++k) {
    rows[k] = array.data()[2 * k];
    cols[k] = array.data()[2 * k + 1];
    for (int block : {rows[k], cols[k]}) {
      if (block >= 0 && block < pattern.num_blocks()) continue;
      throw LinearShapeError("block_pairs[" + std::to_string(k) + "]: there is no block " + std::to_string(block) +
                             ", the matrix has " + std::to_string(pattern.num_blocks()) + ".");
    }
    size += static_cast<std::int64_t>(pattern.block_dim(rows[k])) * pattern.block_dim(cols[k]);
  }
  std::vector<double> values(static_cast<std::size_t>(size));
  {
    py::gil_scoped_release release;
    solver.marginals(rows, cols, values.data());
  }
  py::list result;
  const double* from = values.data();
  for (py::ssize_t k = 0; k < num; ++k) {
    const py::ssize_t r = pattern.block_dim(rows[k]), c = pattern.block_dim(cols[k]);
    py::array_t<double, py::array::f_style> block({r, c});
    std::copy_n(from, r * c, block.mutable_data());
    from += r * c;
    result.append(block);
  }
  return result;
}

void translate(std::exception_ptr error) {
  const auto raise = [](const char* type, const char* what) {
    PyErr_SetString(py::module_::import("graphopt.errors").attr(type).ptr(), what);
  };
  try {
    if (error) std::rethrow_exception(error);
  } catch (const LinearShapeError& e) {
    raise("ShapeError", e.what());
  } catch (const LinearStateError& e) {
    raise("SolverError", e.what());
  }
}

void bind_pattern(py::module_& m) {
  py::class_<BlockPattern, std::shared_ptr<BlockPattern>>(m, "BlockPattern")
      .def(py::init([](const py::object& dims, const py::object& col_ptr, const py::object& row_idx) {
             return std::make_shared<BlockPattern>(vector_of<std::int32_t>(dims, "dims"),
                                                   vector_of<std::int64_t>(col_ptr, "col_ptr"),
                                                   vector_of<std::int32_t>(row_idx, "row_idx"));
           }),
           py::arg("dims"), py::arg("col_ptr"), py::arg("row_idx"))
      .def_property_readonly("num_blocks", &BlockPattern::num_blocks)
      .def_property_readonly("num_stored_blocks", &BlockPattern::num_stored_blocks)
      .def_property_readonly("dim", &BlockPattern::dim)
      .def_property_readonly("values_size", &BlockPattern::values_size)
      .def_property_readonly("dims", [](const py::object& self) { return view_of(self.cast<const BlockPattern&>().dims(), self); })
      .def_property_readonly("col_ptr", [](const py::object& self) { return view_of(self.cast<const BlockPattern&>().col_ptr(), self); })
      .def_property_readonly("row_idx", [](const py::object& self) { return view_of(self.cast<const BlockPattern&>().row_idx(), self); })
      .def_property_readonly("offsets", [](const py::object& self) { return view_of(self.cast<const BlockPattern&>().offsets(), self); })
      .def_property_readonly("value_offsets", [](const py::object& self) { return view_of(self.cast<const BlockPattern&>().value_offsets(), self); });
}

template <class Solver>
py::class_<Solver> bind_direct(py::module_& m, const char* name) {
  return py::class_<Solver>(m, name)
      .def("factorize", &factorize<Solver>, py::arg("values"), py::arg("damping") = py::none())
      .def("solve", &solve<Solver>, py::arg("b"), py::arg("out") = py::none())
      .def("marginals", &marginals<Solver>, py::arg("block_pairs"))
      .def_property_readonly("failed_block", [](const Solver& s) -> py::object {
        return s.failed_block() < 0 ? py::object(py::none()) : py::object(py::int_(s.failed_block()));
      })
      .def_property_readonly("memory_bytes", &Solver::memory_bytes);
}

}  // namespace

void bind_linear(py::module_& m) {
  py::register_local_exception_translator(&translate);
  bind_pattern(m);
  bind_direct<SparseCholesky>(m, "SparseCholesky")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern, const std::string& ordering) {
             py::gil_scoped_release release;
             return std::make_unique<SparseCholesky>(std::move(pattern), ordering);
           }),
           py::arg("pattern"), py::arg("ordering") = "auto")
      .def_property_readonly("ordering", [](const SparseCholesky& s) { return s.symbolic().ordering; })
      .def_property_readonly("permutation", [](const py::object& self) { return view_of(self.cast<const SparseCholesky&>().symbolic().perm, self); })
      .def_property_readonly("num_supernodes", [](const SparseCholesky& s) { return s.symbolic().supernodes.size(); })
      .def_property_readonly("num_nonzeros", [](const SparseCholesky& s) { return static_cast<std::int64_t>(s.symbolic().nonzeros); })
      .def_property_readonly("flops", [](const SparseCholesky& s) { return s.symbolic().flops; });
  bind_direct<DenseCholesky>(m, "DenseCholesky")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern) { return std::make_unique<DenseCholesky>(std::move(pattern)); }),
           py::arg("pattern"))
      .def_property_readonly("num_nonzeros", [](const DenseCholesky& s) { return s.pattern().dim() * (s.pattern().dim() + 1) / 2; })
      .def_property_readonly("flops", &DenseCholesky::flops);
}
