// Block linear algebra: patterns, direct solvers. Arrays are checked here, once, with messages that name
// them; long calls run without the GIL.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bound_schur.h"
#include "exact_arrays.h"
#include "linear/block_pattern.h"
#include "linear/conjugate_gradients.h"
#include "linear/dense_cholesky.h"
#include "linear/device_factor.h"
#include "linear/device_work.h"
#include "linear/dot.h"
#include "linear/errors.h"
#include "linear/kept_memory.h"
#include "linear/pcg.h"
#include "linear/schur_complement.h"
#include "linear/sparse_cholesky.h"
#include "linear_arrays.h"

namespace py = pybind11;
using namespace graphopt;

namespace {

// Right sides: (dim,), or (dim, k) for several.
template <class Solver>
py::object solve(Solver& solver, const py::object& b, const py::object& out) {
  const std::int64_t dim = solver.pattern().dim();
  if (Array::check_(b) && py::reinterpret_borrow<py::array>(b).ndim() == 2) {
    const auto sides = py::array_t<double, py::array::f_style | py::array::forcecast>::ensure(b);
    const std::string rows = std::to_string(dim);
    if (!sides || sides.shape(0) != dim) throw_shape("b", "shape (" + rows + ",) or (" + rows + ", k)", b);
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
      throw LinearShapeError("block_pairs[" + std::to_string(k) + "]: there is no block " +
                             std::to_string(block) + ", the matrix has " +
                             std::to_string(pattern.num_blocks()) + ".");
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

// PCG and, on a pattern, the arrays it refers to.
Array multiply(PatternOperator& matrix, const py::object& values, const py::object& x) {
  const double* v = input(values, "values", matrix.pattern().values_size());
  const double* source = input(x, "x", matrix.pattern().dim());
  Array result(matrix.pattern().dim());
  double* y = result.mutable_data();
  py::gil_scoped_release release;
  matrix.multiply(v, source, y);
  return result;
}

struct BoundPcg {
  std::shared_ptr<PatternOperator> pattern;  // one of the two
  std::shared_ptr<SchurOperator> schur;
  std::unique_ptr<Pcg> pcg;
  py::object keep, values, damping;

  BoundPcg(const py::object& matrix, double tolerance, const py::object& max_iterations,
           bool diagonal_of_kept)
      : keep(matrix) {
    std::shared_ptr<BlockOperator> op;
    if (py::isinstance<BlockPattern>(matrix)) {
      op = pattern = std::make_shared<PatternOperator>(matrix.cast<std::shared_ptr<BlockPattern>>());
    } else if (py::isinstance<BoundSchur>(matrix)) {
      op = schur = std::make_shared<SchurOperator>(matrix.cast<const BoundSchur&>().schur, diagonal_of_kept);
    } else {
      throw LinearShapeError("Pcg: expected a BlockPattern or a SchurComplement, got " + describe(matrix) +
                             ".");
    }
    const std::int64_t limit = max_iterations.is_none() ? -1 : max_iterations.cast<std::int64_t>();
    pcg = std::make_unique<Pcg>(op, tolerance, limit);
  }

  bool factorize(const py::object& new_values, const py::object& new_damping) {
    if (pattern) {
      const double* v = input(new_values, "values", pattern->pattern().values_size());
      const double* d = optional_input(new_damping, "damping", pattern->pattern().dim());
      values = new_values;
      damping = new_damping;
      pattern->set(v, d);
    } else {
      if (!new_values.is_none() || !new_damping.is_none()) {
        throw LinearShapeError(
            "Pcg on a SchurComplement takes its numbers from form(); call factorize() without arrays.");
      }
      schur->schur().require_formed("factorize");
    }
    py::gil_scoped_release release;
    return pcg->factorize();
  }

  py::object solve(const py::object& b, const py::object& out) {
    const double* source = input(b, "b", pcg->dim());
    py::object result = out.is_none() ? py::object(Array(pcg->dim())) : out;
    double* x = vector_data(result, "out", pcg->dim(), true, false);
    py::gil_scoped_release release;
    pcg->solve(source, x);
    return result;
  }
};

Array kept_array(std::int64_t size) {
  if (size < 0) throw LinearShapeError("kept_array: size is " + std::to_string(size) + ", must be >= 0.");
  auto piece = std::make_unique<KeptMemory::Piece>(KeptMemory::instance().take(size));
  double* const data = piece->data;
  const py::capsule owner(piece.release(), [](void* released) {
    const std::unique_ptr<KeptMemory::Piece> own(static_cast<KeptMemory::Piece*>(released));
    KeptMemory::instance().give_back(*own);
  });
  return Array({static_cast<py::ssize_t>(size)}, data, owner);
}

py::object block_or_none(int block) {
  return block < 0 ? py::object(py::none()) : py::object(py::int_(block));
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

const BlockPattern& pattern_of(const py::object& self) { return self.cast<const BlockPattern&>(); }

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
      .def_property_readonly("nbytes", &BlockPattern::nbytes)
      .def("diagonal_indices",
           [](const BlockPattern& self) { return graphopt::bindings::copied(self.diagonal_indices()); })
      .def_property_readonly("dims",
                             [](const py::object& self) { return view_of(pattern_of(self).dims(), self); })
      .def_property_readonly("col_ptr",
                             [](const py::object& self) { return view_of(pattern_of(self).col_ptr(), self); })
      .def_property_readonly("row_idx",
                             [](const py::object& self) { return view_of(pattern_of(self).row_idx(), self); })
      .def_property_readonly("offsets",
                             [](const py::object& self) { return view_of(pattern_of(self).offsets(), self); })
      .def_property_readonly("value_offsets", [](const py::object& self) {
        return view_of(pattern_of(self).value_offsets(), self);
      });
}

template <class Solver>
py::class_<Solver> bind_direct(py::module_& m, const char* name) {
  return py::class_<Solver, LinearSolver>(m, name)
      .def("factorize", &factorize<Solver>, py::arg("values"), py::arg("damping") = py::none())
      .def("solve", &solve<Solver>, py::arg("b"), py::arg("out") = py::none())
      .def("marginals", &marginals<Solver>, py::arg("block_pairs"))
      .def_property_readonly("failed_block", [](const Solver& s) { return block_or_none(s.failed_block()); })
      .def_property_readonly("memory_bytes", &Solver::memory_bytes)
      .def_property_readonly("num_negative", &Solver::num_negative);
}

std::shared_ptr<BlockPattern> shared(const std::shared_ptr<const BlockPattern>& pattern) {
  return std::const_pointer_cast<BlockPattern>(pattern);  // Python sees read-only attributes
}

// The structure of a factorisation for a device, as arrays with one entry per front.
struct DeviceSymbolic {
  std::shared_ptr<const BlockPattern> pattern;
  SymbolicFactor factor;
  std::vector<std::int32_t> first_pivot, num_pivots, num_below, parent, level;
  std::vector<std::int64_t> rows_begin;

  DeviceSymbolic(std::shared_ptr<const BlockPattern> of, const std::string& ordering)
      : pattern(std::move(of)), factor(device_factor(*pattern, ordering)), level(levels_of(factor)) {
    for (const Supernode& node : factor.supernodes) {
      first_pivot.push_back(node.first_pivot);
      num_pivots.push_back(node.num_pivots);
      num_below.push_back(node.num_below);
      parent.push_back(node.parent);
      rows_begin.push_back(node.rows_begin);
    }
  }
};

py::object as_tuple(const WorkRun& run) {
  return run.num == 0 ? py::object(py::none()) : py::make_tuple(run.first, run.num);
}

py::object as_tuple(const ColumnUpdate& update) {
  if (update.run.num == 0) return py::none();
  return py::make_tuple(update.begin, update.end, update.start, update.last, as_tuple(update.run));
}

template <class Item, class AsTuple>
py::list as_list(const std::vector<Item>& items, const AsTuple& one) {
  py::list result;
  for (const Item& item : items) result.append(one(item));
  return result;
}

// words, num_diagonals and the levels, as graphopt.vulkan.cholesky.work takes them.
py::tuple bound_work(const DeviceSymbolic& symbolic, std::int64_t group, std::int64_t at_once,
                     std::vector<std::pair<std::int64_t, std::int64_t>> solve) {
  DeviceWork work = [&] {
    const py::gil_scoped_release release;
    return DeviceWork(symbolic.factor, symbolic.level, {group, at_once, std::move(solve)});
  }();
  const auto of_column = [](const ColumnRun& c) { return py::make_tuple(c.column, as_tuple(c.run)); };
  py::list levels;
  for (const LevelWork& level : work.levels) {
    levels.append(py::make_tuple(
        as_list(level.small, [](const SizedRun& s) { return py::make_tuple(s.size, as_tuple(s.run)); }),
        as_tuple(level.assemble),
        as_list(level.steps,
                [](const PanelStep& s) {
                  return py::make_tuple(s.column, s.panel, as_tuple(s.run), as_tuple(s.beside),
                                        as_tuple(s.after));
                }),
        as_tuple(level.diagonals), as_tuple(level.complement),
        as_list(level.solve_small,
                [](const SizedRun& s) { return py::make_tuple(s.size, s.lanes, as_tuple(s.run)); }),
        as_tuple(level.collect), as_list(level.forward, of_column), as_tuple(level.start),
        as_list(level.backward, of_column)));
  }

  return py::make_tuple(graphopt::bindings::as_array(std::move(work.words)), work.num_diagonals, levels);
}

void bind_symbolic(py::module_& m) {
  const auto view = [](auto member) {
    return [member](const py::object& self) {
      return view_of(self.cast<const DeviceSymbolic&>().*member, self);
    };
  };
  const auto factor_view = [](auto member) {
    return [member](const py::object& self) {
      return view_of(self.cast<const DeviceSymbolic&>().factor.*member, self);
    };
  };
  py::class_<DeviceSymbolic>(m, "DeviceSymbolic")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern, const std::string& ordering) {
             py::gil_scoped_release release;
             return std::make_unique<DeviceSymbolic>(std::move(pattern), ordering);
           }),
           py::arg("pattern"), py::arg("ordering"))
      .def_property_readonly("ordering", [](const DeviceSymbolic& s) { return s.factor.ordering; })
      .def_property_readonly("flops", [](const DeviceSymbolic& s) { return s.factor.flops; })
      .def_property_readonly("nonzeros", [](const DeviceSymbolic& s) { return s.factor.nonzeros; })
      .def_property_readonly("expected_seconds",
                             [](const DeviceSymbolic& s) { return device_seconds(s.factor); })
      .def_property_readonly("first_pivot", view(&DeviceSymbolic::first_pivot))
      .def_property_readonly("num_pivots", view(&DeviceSymbolic::num_pivots))
      .def_property_readonly("num_below", view(&DeviceSymbolic::num_below))
      .def_property_readonly("parent", view(&DeviceSymbolic::parent))
      .def_property_readonly("rows_begin", view(&DeviceSymbolic::rows_begin))
      .def_property_readonly("level", view(&DeviceSymbolic::level))
      .def_property_readonly("permutation", factor_view(&SymbolicFactor::perm))
      .def_property_readonly("scalar_source", factor_view(&SymbolicFactor::scalar_source))
      .def_property_readonly("children_begin", factor_view(&SymbolicFactor::children_begin))
      .def_property_readonly("children", factor_view(&SymbolicFactor::children))
      .def_property_readonly("rows", factor_view(&SymbolicFactor::rows))
      .def_property_readonly("parent_row", factor_view(&SymbolicFactor::parent_row))
      .def(
          "places",
          [](const DeviceSymbolic& s, const py::object& offsets) {
            const std::vector<std::int64_t> first = vector_of<std::int64_t>(offsets, "offsets");
            if (first.size() != s.factor.supernodes.size()) {
              throw_shape("offsets",
                          "one entry per front (" + std::to_string(s.factor.supernodes.size()) + ")",
                          offsets);
            }
            py::array_t<std::uint32_t> result(static_cast<py::ssize_t>(s.pattern->values_size()));
            std::uint32_t* places = result.mutable_data();
            {
              py::gil_scoped_release release;
              column_major_places(s.factor, *s.pattern, first, places);
            }
            return result;
          },
          py::arg("offsets"))
      .def("work", &bound_work, py::arg("group"), py::arg("at_once"), py::arg("solve"));
}

void bind_schur(py::module_& m) {
  py::class_<BoundSchur>(m, "SchurComplement")
      .def(py::init([](const std::shared_ptr<BlockPattern>& pattern, int num_kept, const std::string& mode) {
             py::gil_scoped_release release;
             auto schur = std::make_shared<SchurComplement>(pattern, num_kept, mode == "explicit");
             py::gil_scoped_acquire acquire;
             return std::make_unique<BoundSchur>(
                 BoundSchur{std::move(schur), py::none(), py::none(), py::none()});
           }),
           py::arg("pattern"), py::arg("num_kept"), py::arg("mode") = "explicit")
      .def("form", &BoundSchur::form, py::arg("values"), py::arg("damping"), py::arg("b"))
      .def("reduce", &BoundSchur::reduce, py::arg("b"))
      .def(
          "back_substitute",
          [](BoundSchur& s, const py::object& x_kept, const py::object& out) {
            return s.apply(x_kept, "x_kept", s.schur->kept_dim(), out, s.schur->pattern().dim(),
                           [&](const double* in, double* x) { s.schur->back_substitute(in, x); });
          },
          py::arg("x_kept"), py::arg("out") = py::none())
      .def(
          "multiply",
          [](BoundSchur& s, const py::object& x, const py::object& out) {
            if (out.is(x)) throw LinearShapeError("multiply: out must not be x.");
            return s.apply(x, "x", s.schur->kept_dim(), out, s.schur->kept_dim(),
                           [&](const double* in, double* y) { s.schur->multiply(in, y); });
          },
          py::arg("x"), py::arg("out") = py::none())
      .def("diagonal_blocks",
           [](BoundSchur& s) {
             Array result(s.schur->diagonal_size());
             double* out = result.mutable_data();
             py::gil_scoped_release release;
             s.schur->diagonal_blocks(out);
             return result;
           })
      .def_property_readonly(
          "reduced_pattern",
          [](const BoundSchur& s) {
            if (!s.schur->explicit_form())
              throw LinearStateError("reduced_pattern: the implicit form stores no Schur complement.");
            return shared(s.schur->reduced_pattern());
          })
      .def_property_readonly(
          "reduced_values",
          [](const py::object& self) {
            const SchurComplement& schur = *self.cast<const BoundSchur&>().schur;
            if (!schur.explicit_form())
              throw LinearStateError("reduced_values: the implicit form stores no Schur complement.");
            schur.require_formed("reduced_values");
            return view_of(schur.reduced_values(), self);
          })
      .def_property_readonly("reduced_b",
                             [](const py::object& self) {
                               const SchurComplement& schur = *self.cast<const BoundSchur&>().schur;
                               schur.require_formed("reduced_b");
                               return view_of(schur.reduced_b(), self);
                             })
      .def_property_readonly("num_kept", [](const BoundSchur& s) { return s.schur->num_kept(); })
      .def_property_readonly("kept_dim", [](const BoundSchur& s) { return s.schur->kept_dim(); })
      .def_property_readonly("memory_bytes", [](const BoundSchur& s) { return s.schur->memory_bytes(); })
      .def_property_readonly("failed_block",
                             [](const BoundSchur& s) { return block_or_none(s.schur->failed_block()); });
}

// The vectors of a Python object.
class BoundVectors {
 public:
  explicit BoundVectors(const py::object& vectors)
      : start_(vectors.attr("start")), curvature_(vectors.attr("curvature")), step_(vectors.attr("step")) {}
  double start() { return start_().cast<double>(); }
  double curvature(double beta) { return curvature_(beta).cast<double>(); }
  double step(double alpha) { return step_(alpha).cast<double>(); }

 private:
  py::object start_, curvature_, step_;
};

py::tuple iterated(const py::object& vectors, double tolerance, std::int64_t most, double share, double worth,
                   std::int64_t patience) {
  BoundVectors bound(vectors);
  const ConjugateOutcome outcome = conjugate_gradients(bound, {tolerance, share, worth, most, patience});
  return py::make_tuple(outcome.iterations, outcome.residual, outcome.has_curvature);
}

void bind_pcg(py::module_& m) {
  m.def("patience_after", &ConjugateRule::patience_after, py::arg("iterations"));
  m.def("conjugate_gradients", &iterated, py::arg("vectors"), py::arg("tolerance"), py::arg("most"),
        py::arg("share") = 0.0, py::arg("worth") = 0.0, py::arg("patience") = 0);
  m.def("merged_curvature", &merged_curvature, py::arg("products"), py::arg("residual"), py::arg("alpha"),
        py::arg("beta"));
  py::class_<PatternOperator>(m, "SymmetricProduct")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern) {
             return std::make_unique<PatternOperator>(std::move(pattern));
           }),
           py::arg("pattern"))
      .def("multiply", &multiply, py::arg("values"), py::arg("x"));
  py::class_<BoundPcg>(m, "Pcg")
      .def(py::init<const py::object&, double, const py::object&, bool>(), py::arg("matrix"),
           py::arg("tolerance") = 1e-6, py::arg("max_iterations") = py::none(),
           py::arg("diagonal_of_kept") = false)
      .def("factorize", &BoundPcg::factorize, py::arg("values") = py::none(), py::arg("damping") = py::none())
      .def("solve", &BoundPcg::solve, py::arg("b"), py::arg("out") = py::none())
      .def("reset", [](BoundPcg& p) { p.pcg->reset(); })
      .def(
          "set_early_stop",
          [](BoundPcg& p, double share, double worth) { p.pcg->set_early_stop(share, worth); },
          py::arg("share"), py::arg("worth"))
      .def_property_readonly("iterations", [](const BoundPcg& p) { return p.pcg->iterations(); })
      .def_property_readonly("residual", [](const BoundPcg& p) { return p.pcg->residual(); })
      .def_property_readonly("memory_bytes", [](const BoundPcg& p) { return p.pcg->memory_bytes(); })
      .def_property_readonly("converged", [](const BoundPcg& p) { return p.pcg->converged(); })
      .def_property_readonly("failed_block",
                             [](const BoundPcg& p) { return block_or_none(p.pcg->failed_block()); });
}

}  // namespace

void bind_linear(py::module_& m) {
  py::register_local_exception_translator(&translate);
  bind_pattern(m);
  m.def(
      "dot",
      [](const py::object& a, const py::object& b) {
        const auto size = static_cast<std::int64_t>(py::len(a));
        const double *left = input(a, "a", size), *right = input(b, "b", size);
        const py::gil_scoped_release release;
        return dot(left, right, size);
      },
      py::arg("a"), py::arg("b"), "Sum of a_i b_i, the same for any number of threads.");
  m.def("kept_array", &kept_array, py::arg("size"),
        "An array (size,) that is not cleared, in memory that a released one has left if there is some.");
  m.def(
      "kept_bytes", [] { return KeptMemory::instance().bytes(); },
      "Memory that released arrays have left, at most 64 MiB.");
  py::class_<LinearSolver>(m, "_Factorization");
  bind_direct<SparseCholesky>(m, "SparseCholesky")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern, const std::string& ordering, bool ldlt) {
             py::gil_scoped_release release;
             return std::make_unique<SparseCholesky>(std::move(pattern), ordering, ldlt);
           }),
           py::arg("pattern"), py::arg("ordering") = "auto", py::arg("ldlt") = false)
      .def(py::init([](std::shared_ptr<BlockPattern> pattern, const SparseCholesky& other, bool ldlt) {
             py::gil_scoped_release release;
             SymbolicFactor symbolic(*pattern, other.symbolic());
             return std::make_unique<SparseCholesky>(std::move(pattern), std::move(symbolic), ldlt);
           }),
           py::arg("pattern"), py::arg("ordering"), py::arg("ldlt") = false)
      .def_property_readonly("ordering", [](const SparseCholesky& s) { return s.symbolic().ordering; })
      .def_property_readonly("permutation",
                             [](const py::object& self) {
                               return view_of(self.cast<const SparseCholesky&>().symbolic().perm, self);
                             })
      .def_property_readonly("required_bytes", &SparseCholesky::required_bytes)
      .def_property_readonly("num_supernodes",
                             [](const SparseCholesky& s) { return s.symbolic().supernodes.size(); })
      .def_property_readonly(
          "num_nonzeros",
          [](const SparseCholesky& s) { return static_cast<std::int64_t>(s.symbolic().nonzeros); })
      .def_property_readonly("flops", [](const SparseCholesky& s) { return s.symbolic().flops; });
  bind_direct<DenseCholesky>(m, "DenseCholesky")
      .def(py::init([](std::shared_ptr<BlockPattern> pattern, bool ldlt) {
             return std::make_unique<DenseCholesky>(std::move(pattern), ldlt);
           }),
           py::arg("pattern"), py::arg("ldlt") = false)
      .def_property_readonly(
          "num_nonzeros",
          [](const DenseCholesky& s) { return s.pattern().dim() * (s.pattern().dim() + 1) / 2; })
      .def_property_readonly("flops", &DenseCholesky::flops);
  bind_symbolic(m);
  bind_schur(m);
  bind_pcg(m);
}
