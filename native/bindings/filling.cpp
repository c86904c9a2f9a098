// Bindings of columns of edges that follow from others.
#include "edges/filling.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::edges;

namespace {

using namespace graphopt::bindings;

// (table (k,) int64, or (first, count)), index (m,) int64 or int32.
SlotIds slot_of(const py::tuple& given, py::ssize_t size) {
  require(given.size() == 2, "a slot is a table and an index");
  SlotIds slot;
  if (py::isinstance<py::tuple>(given[0])) {
    const auto range = given[0].cast<std::pair<std::int64_t, std::int64_t>>();
    slot.first = range.first;
    slot.size = range.second;
  } else {
    const auto table = exact<std::int64_t>(given[0], "table", 1);
    slot.table = table.data();
    slot.size = table.size();
  }
  require(py::isinstance<py::array>(given[1]), "index must be an array");
  const auto index = py::reinterpret_borrow<py::array>(given[1]);
  slot.is_wide = index.dtype().equal(py::dtype::of<std::int64_t>());
  require(slot.is_wide || index.dtype().equal(py::dtype::of<std::int32_t>()), "index must be int64 or int32");
  require(index.ndim() == 1 && index.shape(0) == size, "index must have one entry per edge");
  slot.index = static_cast<const char*>(index.data());
  slot.stride = index.strides(0);
  return slot;
}

void bound_fill_edges(const std::vector<py::tuple>& slots, const py::object& vertices,
                      const py::object& information, const py::object& width) {
  auto ids = exact<std::int64_t>(vertices, "vertices", 2);
  require(ids.shape(1) == static_cast<py::ssize_t>(slots.size()), "vertices must have a column per slot");
  std::vector<SlotIds> found;
  for (const py::tuple& slot : slots) found.push_back(slot_of(slot, ids.shape(0)));
  double *matrices = nullptr, *widths = nullptr;
  std::int64_t dim = 0;
  if (!information.is_none()) {
    auto array = exact<double>(information, "information", 3);
    require(array.shape(0) == ids.shape(0) && array.shape(1) == array.shape(2),
            "information must be a square matrix per edge");
    dim = array.shape(1);
    matrices = array.mutable_data();
  }
  if (!width.is_none()) {
    auto array = exact<double>(width, "width", 1);
    require(array.shape(0) == ids.shape(0), "width must have one entry per edge");
    widths = array.mutable_data();
  }
  std::int64_t* const out = ids.mutable_data();
  const std::int64_t size = ids.shape(0);
  bool fits = false;
  {
    const py::gil_scoped_release unlocked;
    fits = fill_edges(found, size, out, matrices, dim, widths);
  }
  require(fits, "an index is outside of its table");
}

// Nobody may change the keypoints meanwhile.
py::tuple bound_read_keypoints(const py::object& addresses, const py::object& counts, std::int64_t stride,
                               std::int64_t id_offset, const py::object& table) {
  const auto from = exact<std::int64_t>(addresses, "addresses", 1);
  const auto lengths = exact<std::int64_t>(counts, "counts", 1);
  require(from.size() == lengths.size(), "addresses and counts must have one entry per image");
  const std::int64_t* rows = nullptr;
  std::int64_t size = 0;
  if (!table.is_none()) {
    const auto array = exact<std::int64_t>(table, "table", 1);
    rows = array.data();
    size = array.size();
  }
  const KeypointLists lists{from.data(), lengths.data(), from.size(), stride, id_offset};
  std::vector<std::int64_t> starts;
  {
    const py::gil_scoped_release unlocked;
    starts = count_observations(lists);
  }
  py::array_t<std::int64_t> image(starts.back()), point(starts.back()), number(starts.back());
  py::array_t<double> pixel({starts.back(), std::int64_t{2}});
  const Observations out{image.mutable_data(), point.mutable_data(), number.mutable_data(),
                         pixel.mutable_data()};
  std::int64_t lost = -1;
  {
    const py::gil_scoped_release unlocked;
    lost = read_observations(lists, starts, rows, size, out);
  }
  return py::make_tuple(image, point, pixel, number, lost);
}

}  // namespace

void bind_filling(py::module_& m) {
  m.def("fill_edges", &bound_fill_edges, py::arg("slots"), py::arg("vertices"), py::arg("information"),
        py::arg("width"),
        "Write ids of vertices, table[index] per slot (or of a table (first, count): first + index), "
        "identity matrices and ones.");
  m.def("read_keypoints", &bound_read_keypoints, py::arg("addresses"), py::arg("counts"), py::arg("stride"),
        py::arg("id_offset"), py::arg("table"),
        "Of keypoints with an id: image, table[id], pixel, number; and an id that the table does not have, "
        "-1 if there is none. Without a table: the id.");
}
