// The vertices that fix a graph as a whole.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "graph/gauge.h"

namespace py = pybind11;

namespace {

using Numbers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<bool, py::array::c_style | py::array::forcecast>;

Numbers to_numpy(const std::vector<std::int64_t>& values) {
  return Numbers(static_cast<py::ssize_t>(values.size()), values.data());
}

Numbers iteration_order(const Numbers& ids) {
  if (ids.ndim() != 1) throw py::value_error("iteration_order: ids must have shape (n,)");
  std::vector<std::int64_t> order;
  {
    const py::gil_scoped_release release;
    order = graphopt::iteration_order(ids.data(), ids.size());
  }
  return to_numpy(order);
}

Numbers gauge_of_parts(const Numbers& order, const Numbers& part, const Numbers& dims, const Flags& is_held) {
  const py::ssize_t count = order.size();
  if (part.size() != count || dims.size() != count)
    throw py::value_error("gauge_of_parts: order, part and dims must have shape (n,)");
  for (py::ssize_t k = 0; k < count; ++k) {
    if (order.data()[k] < 0 || order.data()[k] >= count || part.data()[k] >= is_held.size())
      throw py::index_error("gauge_of_parts: a number is out of range");
  }
  return to_numpy(graphopt::gauge_of_parts(order.data(), part.data(), dims.data(), count, is_held.data(),
                                           is_held.size()));
}

}  // namespace

void bind_components(py::module_& m) {
  m.def("iteration_order", &iteration_order, py::arg("ids"),
        "(n,) int64: positions in ids in the order in which g2o's map iterates over them.");
  m.def("gauge_of_parts", &gauge_of_parts, py::arg("order"), py::arg("part"), py::arg("dims"),
        py::arg("is_held"),
        "(parts,) int64: the first vertex, in this order, of each part's largest dimension; -1: held.");
}
