// Ranks that are threads of one process; see graphopt/distributed.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "vulkan/error.h"
#include "vulkan/rank_loop.h"

namespace py = pybind11;
using namespace graphopt::vulkan;
using graphopt::ConjugateOutcome;

namespace {

using Vector = py::array_t<double, py::array::c_style | py::array::forcecast>;

Vector sum(RankBarrier& barrier, int rank, const Vector& mine) {
  Vector total(mine.size());
  double* to = total.mutable_data();
  const auto count = static_cast<std::size_t>(mine.size());
  const double* from = mine.data();
  const py::gil_scoped_release unlocked;
  barrier.sum(rank, from, to, count);
  return total;
}

py::tuple iterate(RankBarrier& barrier, int rank,
                  const std::vector<std::vector<std::shared_ptr<Program>>>& advance,
                  const std::shared_ptr<Buffer>& message, const std::shared_ptr<Buffer>& total,
                  std::uint64_t rows, bool is_double, double tolerance, std::int64_t most, double share,
                  double worth, std::int64_t patience, double timeout) {
  const RankLoop loop{advance, message, total, rows, is_double, timeout};
  RankOutcome outcome;
  {
    const py::gil_scoped_release unlocked;
    outcome = iterate_ranks(barrier, rank, loop, {tolerance, share, worth, most, patience});
  }
  const ConjugateOutcome& conjugate = outcome.conjugate;
  return py::make_tuple(conjugate.iterations, conjugate.residual, conjugate.has_curvature,
                        outcome.seconds_communicating);
}

}  // namespace

void bind_ranks(py::module_& m) {
  py::register_exception<BarrierBroken>(m, "BarrierBroken", PyExc_RuntimeError);
  py::class_<RankBarrier>(m, "RankBarrier", "Where ranks that are threads of one process add numbers.")
      .def(py::init<int>(), py::arg("size"))
      .def_property_readonly("size", &RankBarrier::size)
      .def("sum", &sum, py::arg("rank"), py::arg("values"))
      .def("abort", &RankBarrier::abort)
      .def("iterate", &iterate, py::arg("rank"), py::arg("advance"), py::arg("message"), py::arg("total"),
           py::arg("rows"), py::arg("is_double"), py::arg("tolerance"), py::arg("most"), py::arg("share"),
           py::arg("worth"), py::arg("patience"), py::arg("timeout"));
}
