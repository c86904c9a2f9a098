// Bindings of the structure of H.
#include "linear/block_structure.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "exact_arrays.h"
#include "linear/graph_parts.h"
#include "linear/level_structure.h"
#include "parallel/shares.h"

namespace py = pybind11;
using namespace graphopt;
using graphopt::bindings::as_array;
using graphopt::bindings::copied;
using graphopt::bindings::exact;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

constexpr std::int64_t kRowsPerThread = 100'000;

template <class T>
const T* data_of(const py::handle& object, const char* name, py::ssize_t size) {
  if (!py::isinstance<Array<T>>(object)) throw py::value_error(std::string(name) + " has the wrong type");
  const auto array = py::reinterpret_borrow<Array<T>>(object);
  if (array.size() != size) throw py::value_error(std::string(name) + " has the wrong length");
  return array.data();
}

py::tuple bound_number_blocks(const std::vector<py::object>& free, const std::vector<py::object>& eliminated,
                              const std::vector<py::object>& ids, const std::vector<std::int32_t>& dims) {
  if (eliminated.size() != free.size() || ids.size() != free.size() || dims.size() != free.size())
    throw py::value_error("number_blocks: the lists must have one entry per vertex set");
  std::vector<VertexFlags> sets(free.size());
  py::list blocks, offsets;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const py::ssize_t size = py::len(free[s]);
    Array<std::int64_t> block(size), offset(size);
    sets[s] = {size,
               data_of<bool>(free[s], "free", size),
               data_of<bool>(eliminated[s], "eliminated", size),
               data_of<std::int64_t>(ids[s], "ids", size),
               dims[s],
               block.mutable_data(),
               offset.mutable_data()};
    blocks.append(std::move(block));
    offsets.append(std::move(offset));
  }
  Numbering numbering;
  {
    const py::gil_scoped_release release;
    numbering = number_blocks(sets);
  }
  return py::make_tuple(as_array(std::move(numbering.dims)), as_array(std::move(numbering.ids)),
                        as_array(std::move(numbering.offsets)), numbering.num_kept, blocks, offsets);
}

// Whether the edges' rows in a slot are those of a table of this size.
bool are_rows(const EdgeSlots& edges, int slot, std::int64_t size) {
  std::atomic<bool> are{true};
  const int shares = ThreadPool::instance().threads_for(edges.size, kRowsPerThread);
  for_each_share(edges.size, shares, [&](int, std::int64_t begin, std::int64_t end) {
    std::int32_t low = 0, high = -1;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t row = edges.rows[i * edges.arity + slot];
      low = std::min(low, row);
      high = std::max(high, row);
    }
    if (low < 0 || high >= size) are = false;
  });
  return are;
}

py::tuple bound_block_pattern(const Array<std::int32_t>& dims, const std::vector<Array<std::int64_t>>& blocks,
                              const std::vector<std::pair<std::vector<int>, py::array>>& selections) {
  std::vector<EdgeSlots> edges(selections.size());
  py::list places;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const auto& [sets, rows] = selections[e];
    const int arity = static_cast<int>(sets.size());
    if (rows.ndim() != 2 || rows.shape(1) != arity) throw py::value_error("vertex_rows has the wrong shape");
    EdgeSlots& one = edges[e];
    one.size = rows.shape(0);
    one.arity = arity;
    one.rows = data_of<std::int32_t>(rows, "vertex_rows", rows.size());
    for (int slot = 0; slot < arity; ++slot) {
      const Array<std::int64_t>& table = blocks.at(static_cast<std::size_t>(sets[slot]));
      one.table.push_back(table.data());
      if (!are_rows(one, slot, table.size()))
        throw py::value_error("vertex_rows names a row that is not there");
    }
    const py::ssize_t num_pairs = arity * (arity + 1) / 2;
    Array<std::int64_t> offset({static_cast<py::ssize_t>(one.size), num_pairs});
    Array<bool> transposed({static_cast<py::ssize_t>(one.size), num_pairs});
    one.block_offset = offset.mutable_data();
    one.block_transposed = transposed.mutable_data();
    places.append(py::make_tuple(std::move(offset), std::move(transposed)));
  }
  const std::vector<std::int32_t> sizes(dims.data(), dims.data() + dims.size());
  std::shared_ptr<BlockPattern> pattern;
  {
    const py::gil_scoped_release release;
    pattern = block_pattern(sizes, edges);
  }
  return py::make_tuple(std::move(pattern), places);
}

py::array bound_graph_parts(const Array<std::int32_t>& begin, const Array<std::int32_t>& neighbor,
                            const Array<std::int32_t>& vertex_weight, const Array<std::int32_t>& edge_weight,
                            int num_parts) {
  const py::ssize_t n = begin.size() - 1;
  if (n < 0 || vertex_weight.size() != n || edge_weight.size() != neighbor.size() || num_parts < 1 ||
      begin.at(0) != 0 || begin.at(n) != neighbor.size())
    throw py::value_error("partition_graph: the arrays do not fit together");
  for (py::ssize_t i = 0; i < n; ++i)
    if (begin.at(i) > begin.at(i + 1)) throw py::value_error("partition_graph: begin must ascend");
  for (py::ssize_t k = 0; k < neighbor.size(); ++k)
    if (neighbor.at(k) < 0 || neighbor.at(k) >= n) throw py::value_error("partition_graph: no such vertex");
  const auto copy = [](const Array<std::int32_t>& array) {
    return std::vector<std::int32_t>(array.data(), array.data() + array.size());
  };
  std::vector<std::int32_t> parts;
  auto b = copy(begin), k = copy(neighbor), v = copy(vertex_weight), e = copy(edge_weight);
  {
    py::gil_scoped_release release;
    parts = graph_parts(std::move(b), std::move(k), std::move(v), std::move(e), num_parts);
  }
  return copied(parts);
}

std::vector<py::array> bound_level_widths(const py::object& place, const py::object& vertex,
                                          const py::object& taken, const py::object& dims) {
  const auto places = exact<std::int64_t>(place, "place", 1),
             vertices = exact<std::int64_t>(vertex, "vertex", 1);
  const auto flags = exact<bool>(taken, "taken", 1);
  const auto sizes = exact<std::int32_t>(dims, "dims", 1);
  if (places.size() != vertices.size() || sizes.size() != flags.size())
    throw py::value_error("level_widths: the arrays do not fit together");
  const auto copy = [](const auto& array) { return std::vector(array.data(), array.data() + array.size()); };
  const std::vector<std::int64_t> at = copy(places), of = copy(vertices);
  for (std::size_t k = 0; k < at.size(); ++k)
    if (at[k] < 0 || of[k] < 0 || of[k] >= flags.size())
      throw py::value_error("level_widths: no such place or vertex");
  const std::vector<std::uint8_t> is_taken(flags.data(), flags.data() + flags.size());
  std::vector<std::vector<double>> widths;
  {
    const py::gil_scoped_release release;
    widths = level_widths(at, of, is_taken, copy(sizes));
  }
  std::vector<py::array> result;
  for (const std::vector<double>& one : widths) result.push_back(copied(one));
  return result;
}

}  // namespace

void bind_block_structure(py::module_& m) {
  m.def("number_blocks", &bound_number_blocks, py::arg("free"), py::arg("eliminated"), py::arg("ids"),
        py::arg("dims"),
        "Per vertex set masks, ids and tangent dimension; returns dims, ids, offsets, number of kept blocks, "
        "and "
        "per vertex set the block and the first scalar of each vertex.");
  m.def("block_pattern", &bound_block_pattern, py::arg("dims"), py::arg("blocks"), py::arg("edges"),
        "BlockPattern of H for edges (vertex sets, vertex rows), and per selection block_offset and "
        "block_transposed.");
  m.def("level_widths", &bound_level_widths, py::arg("place"), py::arg("vertex"), py::arg("taken"),
        py::arg("dims"),
        "Sums of dims (n,) by breadth-first level of vertices (n,) that meet at places, per component.");
  m.def("partition_graph", &bound_graph_parts, py::arg("begin"), py::arg("neighbor"),
        py::arg("vertex_weight"), py::arg("edge_weight"), py::arg("num_parts"),
        "(n,) int32: part of each vertex of a symmetric graph, balanced by weight, by METIS.");
}
