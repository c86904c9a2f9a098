// Models of COLMAP: records of its binary files, and pycolmap's own memory.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "exact_arrays.h"
#include "graph/linked_nodes.h"
#include "text/records.h"

namespace py = pybind11;
using graphopt::bindings::copied;

namespace {

using Ints = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;
using Rows = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Doubles = py::array_t<double, py::array::c_style | py::array::forcecast>;

py::tuple split_records(const py::bytes& data, int64_t first, int64_t count, int64_t head_size,
                        int64_t element_size) {
  const std::string_view view(data);
  graphopt::text::Records found;
  {
    const py::gil_scoped_release release;
    found = graphopt::text::split_records(view, first, count, head_size, element_size);
  }
  return py::make_tuple(py::bytes(found.heads.data(), found.heads.size()),
                        py::bytes(found.elements.data(), found.elements.size()), copied(found.starts),
                        found.end);
}

py::bytes join_records(const py::bytes& heads, const py::bytes& elements, const Ints& starts,
                       int64_t head_size, int64_t element_size) {
  const std::string_view head_view(heads), element_view(elements);
  const auto records = static_cast<int64_t>(starts.size()) - 1;
  if (records < 0 || static_cast<int64_t>(head_view.size()) != records * head_size ||
      static_cast<int64_t>(element_view.size()) != starts.at(records) * element_size)
    throw py::value_error("heads, elements and starts do not belong together");
  PyObject* made =
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(head_view.size() + element_view.size()));
  if (made == nullptr) throw py::error_already_set();
  graphopt::text::join_records(head_view, element_view, starts.data(), records, head_size, element_size,
                               PyBytes_AS_STRING(made));
  return py::reinterpret_steal<py::bytes>(made);
}

graphopt::NodeLayout layout_of(const py::tuple& offsets) {
  return {offsets[0].cast<int64_t>(), offsets[1].cast<int64_t>(), offsets[2].cast<int64_t>()};
}

// The GIL is kept: nobody may change the map meanwhile.
py::tuple read_nodes(uintptr_t first, int64_t count, const py::tuple& offsets) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (count < 0 || count > kMost) throw py::value_error("count must be an int32");
  const graphopt::NodeLayout layout = layout_of(offsets);
  const auto size = static_cast<std::size_t>(count);
  std::vector<int64_t> keys(size);
  py::array_t<double> unsorted({count, int64_t{3}});  // numpy's: in large pages
  double* const values = unsorted.mutable_data();
  const int64_t found = graphopt::walk_nodes(
      reinterpret_cast<const char*>(first), count, layout, [&](int64_t k, const char* node) {
        std::memcpy(&keys[static_cast<std::size_t>(k)], node + layout.key, sizeof(int64_t));
        std::memcpy(values + 3 * k, node + layout.value, 3 * sizeof(double));
      });
  const std::vector<int32_t> order = graphopt::sorted_order(keys);
  py::array_t<int64_t> sorted_keys(count);
  py::array_t<double> sorted_values({count, int64_t{3}});
  Rows rows(count);
  for (int64_t row = 0; row < count; ++row) {
    const auto k = static_cast<std::size_t>(order[static_cast<std::size_t>(row)]);
    sorted_keys.mutable_data()[row] = keys[k];
    rows.mutable_data()[k] = static_cast<int32_t>(row);
    std::memcpy(sorted_values.mutable_data() + 3 * row, values + 3 * k, 3 * sizeof(double));
  }
  return py::make_tuple(sorted_keys, sorted_values, rows, found);
}

// Node k gets row rows[k] of values, and has the key keys[rows[k]].
int64_t write_nodes(uintptr_t first, const py::tuple& offsets, const Rows& rows, const Ints& keys,
                    const Doubles& values) {
  const graphopt::NodeLayout layout = layout_of(offsets);
  const auto count = static_cast<int64_t>(rows.size());
  if (keys.size() != count || values.size() != 3 * count) throw py::value_error("values must be (count, 3)");
  int64_t others = 0;
  const int64_t found =
      graphopt::walk_nodes(reinterpret_cast<const char*>(first), count, layout, [&](int64_t k, char* node) {
        int64_t key = 0;
        std::memcpy(&key, node + layout.key, sizeof key);
        const int64_t row = rows.data()[k];
        if (row < 0 || row >= count || key != keys.data()[row]) {
          ++others;
          return;
        }
        std::memcpy(node + layout.value, values.data() + 3 * row, 3 * sizeof(double));
      });
  if (others > 0 || found != count) throw std::runtime_error("the points changed while they were refined");
  return found;
}

}  // namespace

void bind_colmap(py::module_& m) {
  m.def("split_records", &split_records, py::arg("data"), py::arg("first"), py::arg("count"),
        py::arg("head_size"), py::arg("element_size"));
  m.def("join_records", &join_records, py::arg("heads"), py::arg("elements"), py::arg("starts"),
        py::arg("head_size"), py::arg("element_size"));
  m.def("read_nodes", &read_nodes, py::arg("first"), py::arg("count"), py::arg("offsets"));
  m.def("write_nodes", &write_nodes, py::arg("first"), py::arg("offsets"), py::arg("rows"), py::arg("keys"),
        py::arg("values"));
}
