// Bindings of passes over all edges of a graph: orders, counts, copies in a device's layout, sums of chi2.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "edges/chi2.h"
#include "edges/columns.h"
#include "edges/order.h"
#include "edges/parts.h"
#include "edges/points.h"
#include "edges/rays.h"
#include "edges/scan.h"
#include "edges/shares.h"
#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::edges;
using graphopt::vm::Program;

namespace {

using namespace graphopt::bindings;

template <class T>
using Array = ExactArray<T>;

const std::int64_t* optional_rows(const py::object& rows, py::ssize_t num_edges) {
  if (rows.is_none()) return nullptr;
  const auto array = exact<std::int64_t>(rows, "rows", 1);
  require(num_edges < 0 || array.size() == num_edges, "rows has not one entry per edge");
  return array.data();
}

using Sources = std::vector<std::pair<py::object, std::vector<int>>>;

// The arrays stay alive as long as `sources` does.
template <class T>
std::vector<Columns<T>> columns_of(const Sources& sources, const std::int64_t* row) {
  std::vector<Columns<T>> result;
  for (const auto& [object, columns] : sources) {
    const auto array = exact<T>(object, "a source", 2);
    for (const int column : columns)
      require(column >= 0 && column < array.shape(1), "there is no such column");
    result.push_back({array.data(), static_cast<int>(array.shape(1)), columns, row});
  }
  return result;
}

void require_slot(const Array<std::int32_t>& rows, int slot) {
  require(slot >= 0 && slot < rows.shape(1), "there is no such slot");
}

Array<std::uint32_t> bound_sort_by_ends(const py::object& rows, int slot, int other, const py::object& table,
                                        std::int64_t num_keys, std::int64_t num_others) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto t = exact<std::int64_t>(table, "table", 1);
  for (const int one : {slot, other}) require_slot(r, one);
  Array<std::uint32_t> order(r.shape(0));
  std::uint32_t* out = order.mutable_data();
  {
    const py::gil_scoped_release release;
    sort_by_ends(r.data(), static_cast<int>(r.shape(1)), slot, other, r.shape(0), t.data(), num_keys,
                 num_others, out);
  }
  return order;
}

py::array bound_places_in(const py::object& numbers, const py::object& values) {
  const auto n = exact<std::int64_t>(numbers, "numbers", 1);
  const auto v = exact<std::uint32_t>(values, "values", 1);
  graphopt::PlainArray<std::int64_t> at(v.size());
  {
    const py::gil_scoped_release release;
    places_in(n.data(), n.size(), v.data(), v.size(), at.begin());
  }
  return as_array(std::move(at));
}

py::tuple bound_sort_pairs(const py::object& offset, const py::object& transposed, int pair,
                           const py::object& order, const py::object& left_out) {
  const auto at = exact<std::int64_t>(offset, "offset", 2);
  const auto t = exact<bool>(transposed, "transposed", 2);
  const auto o = exact<std::uint32_t>(order, "order", 1);
  std::optional<Array<bool>> left;
  if (!left_out.is_none()) left = exact<bool>(left_out, "left_out", 1);
  require(t.shape(0) == at.shape(0) && t.shape(1) == at.shape(1) && 0 <= pair && pair < at.shape(1) &&
              o.size() <= at.shape(0) && (!left || left->size() == at.shape(0)),
          "offset, transposed and left_out do not belong together");
  graphopt::edges::PairOrder found;
  {
    const py::gil_scoped_release release;
    found =
        sort_pairs({at.data(), t.data(), left ? left->data() : nullptr, static_cast<int>(at.shape(1)), pair},
                   o.data(), o.size());
  }
  return py::make_tuple(as_array(std::move(found.first)), as_array(std::move(found.edges)),
                        as_array(std::move(found.offset)));
}

py::tuple bound_take_segments(const py::object& first, const py::object& chosen, const py::object& numbers) {
  const auto f = exact<std::uint32_t>(first, "first", 1);
  const auto c = exact<std::int64_t>(chosen, "chosen", 1);
  const auto n = exact<std::uint32_t>(numbers, "numbers", 1);
  const py::ssize_t num = f.size() - 1;
  require(num == c.size() && num >= 0 && f.at(0) == 0 && f.at(num) <= n.size(),
          "first is no list of segments");
  std::vector<bool> is_chosen(static_cast<std::size_t>(num), false);
  for (py::ssize_t s = 0; s < num; ++s) {
    require(0 <= c.at(s) && c.at(s) < num && !is_chosen[static_cast<std::size_t>(c.at(s))] &&
                f.at(s) <= f.at(s + 1),
            "chosen must have each segment once");
    is_chosen[static_cast<std::size_t>(c.at(s))] = true;
  }
  graphopt::edges::Segments found;
  {
    const py::gil_scoped_release release;
    found = take_segments(f.data(), c.data(), num, n.data(), n.size());
  }
  return py::make_tuple(as_array(std::move(found.first)), as_array(std::move(found.numbers)));
}

py::array bound_neighbour_keys(const py::object& rows, int slot, int other, const py::object& order,
                               const py::object& first, std::int64_t num_rows, std::int64_t num_others) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto o = exact<std::uint32_t>(order, "order", 1);
  const auto f = exact<std::uint32_t>(first, "first", 1);
  for (const int one : {slot, other}) require_slot(r, one);
  require(f.size() > 0 && f.at(f.size() - 1) <= o.size() && o.size() == r.shape(0),
          "first is no list of runs");
  graphopt::PlainArray<std::int64_t> keys(num_rows);
  {
    const py::gil_scoped_release release;
    neighbour_keys(
        {r.data(), static_cast<int>(r.shape(1)), slot, other, o.data(), f.data(), f.size() - 1, num_others},
        num_rows, keys.begin());
  }
  return as_array(std::move(keys));
}

Array<std::int32_t> bound_renumber_rows(const py::object& rows, int slot, const py::object& place) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto p = exact<std::uint32_t>(place, "place", 1);
  require_slot(r, slot);
  Array<std::int32_t> out({r.shape(0), r.shape(1)});
  std::int32_t* target = out.mutable_data();
  {
    const py::gil_scoped_release release;
    renumber_rows(r.data(), r.shape(0), static_cast<int>(r.shape(1)), slot, p.data(), target);
  }
  return out;
}

py::tuple bound_sort_by_key(const py::object& rows, int slot, const py::object& table,
                            std::int64_t num_keys) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto t = exact<std::int64_t>(table, "table", 1);
  require_slot(r, slot);
  Array<std::uint32_t> order(r.shape(0));
  std::uint32_t* out = order.mutable_data();
  Order result;
  {
    const py::gil_scoped_release release;
    result = sort_by_key(r.data() + slot, static_cast<int>(r.shape(1)), r.shape(0), t.data(), num_keys, out);
  }
  return py::make_tuple(std::move(order), as_array(std::move(result.first)),
                        as_array(std::move(result.keys)));
}

py::array bound_tile_starts(const py::object& first, std::int64_t begin, std::int64_t end,
                            std::int64_t most) {
  const auto f = exact<std::uint32_t>(first, "first", 1);
  require(0 <= begin && begin <= end && end < std::max<py::ssize_t>(f.size(), 1), "begin or end is outside");
  std::vector<std::uint32_t> starts;
  {
    const py::gil_scoped_release release;
    starts = tile_starts(f.data(), begin, end, most);
  }
  return as_array(std::move(starts));
}

struct Target {
  std::int64_t num_edges, num_blocks, num_columns;
  unsigned char* data;
};

Target target_of(const Sources& sources, const Array<std::uint32_t>& order, std::int64_t first_block,
                 const py::object& out, std::int64_t width) {
  const auto bytes = exact<std::uint8_t>(out, "out", 1);
  Target result{order.size(), 0, 0, nullptr};
  for (const auto& source : sources) result.num_columns += static_cast<std::int64_t>(source.second.size());
  const std::int64_t block = result.num_columns * kBlock * width;
  require(block > 0 && bytes.size() % block == 0, "out does not hold whole blocks");
  result.num_blocks = bytes.size() / block;
  require(first_block >= 0 && (first_block + result.num_blocks - 1) * kBlock < result.num_edges,
          "out holds more blocks than there are");
  result.data = const_cast<unsigned char*>(bytes.data());
  return result;
}

void bound_block_rows(const Sources& sources, const py::object& order, std::int64_t first_block,
                      const py::object& out) {
  const auto edges = exact<std::uint32_t>(order, "order", 1);
  const Target target = target_of(sources, edges, first_block, out, 4);
  const auto columns = columns_of<std::int32_t>(sources, nullptr);
  const py::gil_scoped_release release;
  block_rows(columns, edges.data(), target.num_edges, first_block, target.num_blocks,
             reinterpret_cast<std::uint32_t*>(target.data));
}

Width width_of(const std::string& width) {
  require(width == "float64" || width == "float32" || width == "two_floats",
          "width must be float64, float32 or two_floats");
  if (width == "float64") return Width::kFloat64;
  return width == "float32" ? Width::kFloat32 : Width::kTwoFloats;
}

void bound_block_numbers(const Sources& sources, const py::object& rows, const py::object& order,
                         std::int64_t first_block, const std::string& width, const py::object& out) {
  const Width kind = width_of(width);
  const auto edges = exact<std::uint32_t>(order, "order", 1);
  const Target target = target_of(sources, edges, first_block, out, kind == Width::kFloat32 ? 4 : 8);
  const auto columns = columns_of<double>(sources, optional_rows(rows, -1));
  const py::gil_scoped_release release;
  block_numbers(columns, edges.data(), target.num_edges, first_block, target.num_blocks, kind, target.data);
}

// Row of each record, nothing: its number.
std::optional<Array<std::uint32_t>> optional_order(const py::object& order, py::ssize_t num_rows) {
  if (order.is_none()) return std::nullopt;
  auto o = exact<std::uint32_t>(order, "order", 1);
  require(o.size() == num_rows, "order has not one row per record");
  return o;
}

void bound_pad_rows(const py::object& values, int record, std::int64_t first_row, const std::string& width,
                    const py::object& out, const py::object& order) {
  const auto v = exact<double>(values, "values", 2);
  const auto o = optional_order(order, v.shape(0));
  const auto bytes = exact<std::uint8_t>(out, "out", 1);
  const Width kind = width_of(width);
  const std::int64_t row = record * (kind == Width::kFloat32 ? 4 : 8);
  require(record >= v.shape(1) && bytes.size() % std::max<std::int64_t>(row, 1) == 0,
          "out does not hold whole records");
  const std::int64_t num_rows = bytes.size() / std::max<std::int64_t>(row, 1);
  require(first_row >= 0 && first_row + num_rows <= v.shape(0), "out holds more rows than there are");
  void* target = const_cast<unsigned char*>(bytes.data());
  const py::gil_scoped_release release;
  pad_rows(v.data(), static_cast<int>(v.shape(1)), record, o ? o->data() : nullptr, first_row, num_rows, kind,
           target);
}

void bound_unpad_rows(const py::object& records, int record, const std::string& width,
                      const py::object& chosen, const py::object& values, const py::object& order) {
  const auto r = exact<double>(records, "records", 1);
  const auto c = exact<bool>(chosen, "chosen", 1);
  auto v = exact<double>(values, "values", 2);
  const Width kind = width_of(width);
  require(kind != Width::kFloat32, "records are float64 or two floats");
  require(record >= v.shape(1) && r.size() == v.shape(0) * record && c.size() == v.shape(0),
          "there must be a record and a flag per row of values");
  const auto o = optional_order(order, v.shape(0));
  double* out = v.mutable_data();
  const py::gil_scoped_release release;
  unpad_rows(r.data(), record, kind, o ? o->data() : nullptr, c.data(), c.size(),
             static_cast<int>(v.shape(1)), out);
}

Array<std::uint32_t> bound_row_table(const py::object& dims, const py::object& offset) {
  const auto d = exact<std::int32_t>(dims, "dims", 1);
  const auto o = exact<std::int64_t>(offset, "offset", 1);
  require(d.size() == o.size(), "offset has not one entry per block");
  std::int64_t num_rows = 0;
  for (py::ssize_t k = 0; k < d.size(); ++k) num_rows += d.data()[k];
  Array<std::uint32_t> table({static_cast<py::ssize_t>(num_rows), py::ssize_t{3}});
  std::uint32_t* out = table.mutable_data();
  const py::gil_scoped_release release;
  row_table(d.data(), o.data(), d.size(), out);
  return table;
}

py::bytes bound_fingerprint(const py::array& array) {
  require((array.flags() & py::array::c_style) != 0, "the array must be C-contiguous");
  const void* data = array.data();
  const std::int64_t size = array.nbytes();
  Fingerprint sum;
  {
    const py::gil_scoped_release release;
    sum = fingerprint(data, size);
  }
  char text[16];
  std::memcpy(text, &sum.low, 8);
  std::memcpy(text + 8, &sum.high, 8);
  return py::bytes(text, sizeof text);
}

py::tuple bound_look_up(const py::object& ids, std::int64_t low, const py::object& table) {
  const auto i = exact<std::int64_t>(ids, "ids", 2);
  const auto t = exact<std::int32_t>(table, "table", 1);
  Array<std::int32_t> out({i.shape(0), i.shape(1)});
  std::int32_t* rows = out.mutable_data();
  std::int32_t smallest;
  {
    const py::gil_scoped_release release;
    smallest = look_up(i.data(), i.size(), low, t.data(), t.size(), rows);
  }
  return py::make_tuple(std::move(out), smallest);
}

void bound_mark(const py::object& rows, int slot, const py::object& mask) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  auto m = exact<bool>(mask, "mask", 1);
  require_slot(r, slot);
  bool* flags = m.mutable_data();
  const py::gil_scoped_release release;
  mark(r.data() + slot, static_cast<int>(r.shape(1)), r.shape(0), flags);
}

// (labels (n,), is held (parts,)); edges: (vertex rows (m, arity), number of the first row of each slot's
// set).
py::tuple bound_connected_parts(const py::object& taken,
                                const std::vector<std::pair<py::object, std::vector<std::int64_t>>>& edges) {
  const auto t = exact<bool>(taken, "taken", 1);
  std::vector<EdgeRows> sets;
  for (const auto& [object, first] : edges) {
    const auto rows = exact<std::int32_t>(object, "vertex rows", 2);
    require(rows.shape(1) == static_cast<py::ssize_t>(first.size()), "first has not one entry per slot");
    sets.push_back({rows.data(), rows.shape(0), first});
  }
  Array<std::int64_t> label(t.size());
  std::int64_t* out = label.mutable_data();
  std::vector<bool> is_held;
  {
    const py::gil_scoped_release release;
    is_held = connected_parts(t.data(), t.size(), sets, out);
  }
  Array<bool> held(static_cast<py::ssize_t>(is_held.size()));
  std::copy(is_held.begin(), is_held.end(), held.mutable_data());
  return py::make_tuple(std::move(label), std::move(held));
}

py::tuple bound_edges_with_free_vertex(const py::object& rows, const std::vector<py::object>& fixed) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  require(r.shape(1) == static_cast<py::ssize_t>(fixed.size()), "fixed has not one mask per slot");
  std::vector<Array<bool>> kept_alive;
  std::vector<const bool*> masks;
  for (const py::object& mask : fixed) {
    kept_alive.push_back(exact<bool>(mask, "a mask", 1));
    masks.push_back(kept_alive.back().data());
  }
  Array<bool> keep(r.shape(0));
  bool* out = keep.mutable_data();
  std::int64_t count;
  {
    const py::gil_scoped_release release;
    count = edges_with_free_vertex(r.data(), r.shape(0), masks, out);
  }
  return py::make_tuple(std::move(keep), count);
}

std::string bound_kind(const py::object& information, const py::object& rows) {
  const auto one = exact<double>(information, "information", 3);
  require(one.shape(1) == one.shape(2), "information must be (n, d, d)");
  const std::int64_t* row = optional_rows(rows, -1);
  const py::ssize_t num = row == nullptr ? one.shape(0) : py::len(rows);
  Kind kind;
  {
    const py::gil_scoped_release release;
    kind = kind_of(one.data(), num, static_cast<int>(one.shape(1)), row);
  }
  return kind == Kind::kIdentity ? "identity" : kind == Kind::kDiagonal ? "diagonal" : "full";
}

py::tuple bound_couplings(const py::object& rows, const std::vector<py::object>& tables,
                          std::int64_t num_kept, std::int64_t num_eliminated, std::int64_t stride) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  require(static_cast<py::ssize_t>(tables.size()) == r.shape(1), "there must be a table per slot");
  require(stride >= 0, "stride must not be negative");
  require(stride == 0 || r.shape(0) + num_eliminated / stride + 1 < (std::int64_t{1} << 31),
          "there are too many places");
  std::vector<const std::int64_t*> blocks;
  for (const py::object& one : tables) blocks.push_back(exact<std::int64_t>(one, "a table", 1).data());
  Couplings found;
  {
    const py::gil_scoped_release release;
    found = find_couplings(r.data(), static_cast<int>(r.shape(1)), r.shape(0), blocks, num_kept,
                           num_eliminated, stride);
  }
  py::list optimized, eliminated;
  for (const Coupling& one : found.pairs) {
    optimized.append(one.optimized);
    eliminated.append(one.eliminated);
  }
  Array<std::int32_t> meetings({static_cast<py::ssize_t>(found.meetings.size()), py::ssize_t{2}});
  static_assert(sizeof(Meeting) == 2 * sizeof(std::int32_t));
  if (!found.meetings.empty())
    std::memcpy(meetings.mutable_data(), found.meetings.data(), found.meetings.size() * sizeof(Meeting));
  return py::make_tuple(optimized, eliminated, std::move(meetings));
}

py::array bound_row_numbers(std::int64_t count) {
  require(count >= 0, "count must not be negative");
  graphopt::PlainArray<std::int64_t> numbers(count);
  {
    const py::gil_scoped_release release;
    count_up(numbers.begin(), count);
  }
  return as_array(std::move(numbers));
}

py::array bound_table_by_id(const std::vector<py::object>& ids, std::int64_t low, std::int64_t span,
                            bool of_rows) {
  require(span >= 0, "span must not be negative");
  std::vector<Array<std::int64_t>> sets;
  for (const py::object& one : ids) {
    sets.push_back(exact<std::int64_t>(one, "ids", 1));
    const auto [least, most] =
        std::minmax_element(sets.back().data(), sets.back().data() + sets.back().size());
    require(sets.back().size() == 0 || (*least >= low && *most - low < span),
            "an id is outside of the table");
  }
  graphopt::PlainArray<std::int32_t> table(span);
  {
    const py::gil_scoped_release release;
    for_each_share(span, [&](std::int64_t begin, std::int64_t end) {
      std::fill(table.begin() + begin, table.begin() + end, -1);
    });
    for (std::size_t k = 0; k < sets.size(); ++k)
      place_by_id(sets[k].data(), sets[k].size(), low, table.begin(),
                  of_rows ? std::nullopt : std::optional(static_cast<std::int32_t>(k)));
  }
  return as_array(std::move(table));
}

py::array bound_invert_order(const py::object& order) {
  const auto o = exact<std::uint32_t>(order, "order", 1);
  graphopt::PlainArray<std::uint32_t> place(o.size());
  {
    const py::gil_scoped_release release;
    invert_order(o.data(), o.size(), place.begin());
  }
  return as_array(std::move(place));
}

std::optional<std::int64_t> bound_common_step(const py::array& numbers) {
  require(numbers.ndim() == 1, "numbers has the wrong number of dimensions");
  const auto find = [&](auto number) {
    const auto exactly = exact<decltype(number)>(numbers, "numbers", 1);
    const py::gil_scoped_release release;
    return common_step(exactly.data(), exactly.size());
  };
  switch (numbers.dtype().char_()) {
    case 'i':
      return find(std::int32_t{});
    case 'I':
      return find(std::uint32_t{});
    default:
      return find(std::int64_t{});
  }
}

std::vector<Table> tables_of(const std::vector<py::object>& arrays) {
  std::vector<Table> result;
  for (const py::object& object : arrays) {
    const auto array = exact<double>(object, "a table of numbers", 2);
    result.push_back({array.data(), static_cast<int>(array.shape(1))});
  }
  return result;
}

// The arrays stay alive as long as the arguments do.
EdgeInputs inputs_of(const Program& program, const Program* kernel, const std::vector<py::object>& vertices,
                     const py::object& vertex_rows, const std::vector<py::object>& parameters,
                     const py::object& parameter_rows, const Sources& data, const py::object& rows) {
  EdgeInputs inputs;
  inputs.vertices = tables_of(vertices);
  inputs.parameters = tables_of(parameters);
  const auto v = exact<std::int32_t>(vertex_rows, "vertex_rows", 2);
  const auto p = exact<std::int32_t>(parameter_rows, "parameter_rows", 2);
  require(v.shape(1) == static_cast<py::ssize_t>(vertices.size()) &&
              p.shape(1) == static_cast<py::ssize_t>(parameters.size()) && v.shape(0) == p.shape(0),
          "vertex_rows and parameter_rows must have a row per edge and a column per slot");
  inputs.vertex_rows = v.data();
  inputs.parameter_rows = p.data();
  inputs.data = columns_of<double>(data, optional_rows(rows, v.shape(0)));
  std::size_t num_inputs = 0;
  for (const auto& tables : {inputs.vertices, inputs.parameters})
    for (const Table& table : tables) num_inputs += static_cast<std::size_t>(table.columns);
  for (const auto& source : inputs.data) num_inputs += source.columns.size();
  require(num_inputs == static_cast<std::size_t>(program.num_inputs()) + (kernel == nullptr ? 0 : 1),
          "the program takes another number of inputs");
  require(kernel != nullptr || !program.uses_robust, "the program needs a robust kernel");
  return inputs;
}

Array<double> bound_sum_chi2(const Program& program, const Program* kernel,
                             const std::vector<py::object>& vertices, const py::object& vertex_rows,
                             const std::vector<py::object>& parameters, const py::object& parameter_rows,
                             const Sources& data, const py::object& rows, const py::object& order,
                             const py::object& first) {
  const EdgeInputs inputs =
      inputs_of(program, kernel, vertices, vertex_rows, parameters, parameter_rows, data, rows);
  const auto o = exact<std::uint32_t>(order, "order", 1), f = exact<std::uint32_t>(first, "first", 1);
  require(f.size() > 0 && f.at(f.size() - 1) <= o.size(), "first ends behind order");
  Array<double> out(f.size() - 1);
  double* sums = out.mutable_data();
  const py::gil_scoped_release release;
  sum_chi2({&program, kernel}, inputs, o.data(), f.data(), f.size() - 1, sums);
  return out;
}

Array<double> bound_edge_outputs(const Program& program, const std::vector<py::object>& vertices,
                                 const py::object& vertex_rows, const std::vector<py::object>& parameters,
                                 const py::object& parameter_rows, const Sources& data,
                                 const py::object& rows) {
  const EdgeInputs inputs =
      inputs_of(program, nullptr, vertices, vertex_rows, parameters, parameter_rows, data, rows);
  const py::ssize_t count = py::len(vertex_rows);
  Array<double> out({count, static_cast<py::ssize_t>(program.num_outputs())});
  double* numbers = out.mutable_data();
  const py::gil_scoped_release release;
  edge_outputs(program, inputs, count, numbers);
  return out;
}

// Program, kernel, vertices, vertex_rows, parameters, parameter_rows, data, rows, first, the points' slot,
// and the outputs where H and b begin.
using PointArguments =
    std::tuple<const Program*, const Program*, std::vector<py::object>, py::object, std::vector<py::object>,
               py::object, Sources, py::object, py::object, int, int, int>;

PointEdges point_edges(const PointArguments& arguments) {
  const auto& [program, kernel, vertices, vertex_rows, parameters, parameter_rows, data, rows, first, slot, h,
               b] = arguments;
  require(program != nullptr, "a program is missing");
  PointEdges result;
  result.programs = {program, kernel};
  result.inputs = inputs_of(*program, kernel, vertices, vertex_rows, parameters, parameter_rows, data, rows);
  const auto f = exact<std::uint32_t>(first, "first", 1);
  require(f.size() > 0 && f.at(f.size() - 1) == static_cast<std::size_t>(py::len(vertex_rows)),
          "first must end at the edges");
  require(0 <= slot && slot < static_cast<int>(vertices.size()), "the points' slot does not exist");
  require(h > 0 && b > 0 && h + 6 <= program->num_outputs() && b + 3 <= program->num_outputs(),
          "the program has no such outputs");
  result.inputs.moving = slot;
  result.first = f.data();
  result.num_points = f.size() - 1;
  result.h = h;
  result.b = b;
  return result;
}

py::tuple bound_minimise_points(const std::vector<PointArguments>& edges, const py::object& points,
                                const py::object& bound, int rounds, int iterations) {
  auto x = exact<double>(points, "points", 2);
  const auto limit = exact<double>(bound, "bound", 1);
  const py::ssize_t num = x.shape(0);
  require(x.shape(1) == 3 && limit.size() == num, "points must be (n, 3), bound (n,)");
  std::vector<PointEdges> groups;
  for (const PointArguments& one : edges) groups.push_back(point_edges(one));
  const std::int64_t num_points = groups.empty() ? num : groups[0].num_points;
  for (const PointEdges& one : groups)
    require(one.num_points == num_points, "all groups must have edges of the same points");
  require(num == 0 || (num_points > 0 && num % num_points == 0), "points must be starts of all points");
  std::vector<PointSystem> systems(static_cast<std::size_t>(num));
  Array<bool> falls(num);
  double* place = x.mutable_data();
  bool* flags = falls.mutable_data();
  {
    const py::gil_scoped_release release;
    minimise_points(groups, num_points, place, num, {rounds, iterations, limit.data()}, systems.data(),
                    flags);
  }
  Array<double> chi2(num), h({num, py::ssize_t{3}, py::ssize_t{3}}), b({num, py::ssize_t{3}});
  auto c = chi2.mutable_unchecked<1>();
  auto full = h.mutable_unchecked<3>();
  auto right = b.mutable_unchecked<2>();
  for (py::ssize_t k = 0; k < num; ++k) {
    const PointSystem& one = systems[static_cast<std::size_t>(k)];
    c(k) = one.chi2;
    for (int column = 0, at = 0; column < 3; ++column) {
      for (int row = 0; row <= column; ++row, ++at) full(k, row, column) = full(k, column, row) = one.h[at];
      right(k, column) = one.b[column];
    }
  }
  return py::make_tuple(std::move(chi2), std::move(h), std::move(b), std::move(falls));
}

// (centre, direction, distance, known); `arguments` have one point per edge, which `points` are.
py::tuple bound_viewing_rays(const PointArguments& arguments, const py::object& points, double spread) {
  auto x = exact<double>(points, "points", 2);
  const py::ssize_t num = x.shape(0);
  require(x.shape(1) == 3, "points must be (m, 3)");
  const PointEdges edges = point_edges(arguments);
  require(edges.num_points == num && edges.first[num] == static_cast<std::uint32_t>(num),
          "there must be a point per edge");
  Array<double> centre({num, py::ssize_t{3}}), direction({num, py::ssize_t{3}}), distance(num);
  Array<bool> known(num);
  const Rays out{centre.mutable_data(), direction.mutable_data(), distance.mutable_data(),
                 known.mutable_data()};
  double* place = x.mutable_data();
  {
    const py::gil_scoped_release release;
    viewing_rays(edges, num, place, spread, out);
  }
  return py::make_tuple(std::move(centre), std::move(direction), std::move(distance), std::move(known));
}

// Centre, direction, distance, known, point.
using RayArrays = std::tuple<py::object, py::object, py::object, py::object, py::object>;

std::vector<SeenRays> seen_rays(const std::vector<RayArrays>& arrays, std::int64_t num_points) {
  std::vector<SeenRays> result;
  for (const auto& [centre, direction, distance, known, point] : arrays) {
    const auto c = exact<double>(centre, "centre", 2), r = exact<double>(direction, "direction", 2);
    const auto d = exact<double>(distance, "distance", 1);
    const auto k = exact<bool>(known, "known", 1);
    const auto p = exact<std::int64_t>(point, "point", 1);
    const py::ssize_t size = p.size();
    require(c.size() == 3 * size && r.size() == 3 * size && d.size() == size && k.size() == size,
            "rays must have a row per edge");
    require(std::all_of(p.data(), p.data() + size, [&](auto one) { return 0 <= one && one < num_points; }),
            "a ray belongs to a point that does not exist");
    result.push_back({c.data(), r.data(), d.data(), k.data(), p.data(), size});
  }
  return result;
}

Array<double> bound_candidate_places(const std::vector<RayArrays>& rays, std::int64_t num_points,
                                     const std::vector<double>& fractions) {
  const std::vector<SeenRays> seen = seen_rays(rays, num_points);
  Array<double> out(
      {static_cast<py::ssize_t>(fractions.size() + 1), static_cast<py::ssize_t>(num_points), py::ssize_t{3}});
  double* places = out.mutable_data();
  const py::gil_scoped_release release;
  candidate_places(seen, num_points, fractions, places);
  return out;
}

Array<bool> bound_mark_front(const std::vector<RayArrays>& rays, const py::object& places) {
  const auto x = exact<double>(places, "places", 3);
  require(x.shape(2) == 3, "places must be (k, n, 3)");
  const std::vector<SeenRays> seen = seen_rays(rays, x.shape(1));
  Array<bool> out({x.shape(0), x.shape(1)});
  bool* front = out.mutable_data();
  const py::gil_scoped_release release;
  mark_front(seen, x.shape(1), x.data(), x.shape(0) * x.shape(1), front);
  return out;
}

Array<std::int64_t> bound_large_sums(const py::object& sums, const py::object& first, double bound) {
  const auto s = exact<double>(sums, "sums", 1);
  const auto f = exact<std::uint32_t>(first, "first", 1);
  require(f.size() == s.size() + 1, "first must have one more entry than sums");
  const auto found = [&] {
    const py::gil_scoped_release release;
    return large_sums(s.data(), f.data(), s.size(), bound);
  }();
  return copied(found);
}

bool is_plain(const py::array& array) {
  return (array.flags() & py::array::c_style) && array.dtype().char_() == 'd';
}

}  // namespace

void bind_edges(py::module_& m) {
  m.def("sort_by_key", &bound_sort_by_key, py::arg("rows"), py::arg("slot"), py::arg("table"),
        py::arg("num_keys"),
        "Edges (m, arity) by key table[row in the slot], those with a negative key last: order (m,) uint32, "
        "first (k + 1,) uint32 of each key that occurs, and these keys (k,) int64.");
  m.def("sort_by_ends", &bound_sort_by_ends, py::arg("rows"), py::arg("slot"), py::arg("other"),
        py::arg("table"), py::arg("num_keys"), py::arg("num_others"),
        "Order (m,) uint32 of sort_by_key, edges with the same key by their rows in slot `other`.");
  m.def("places_in", &bound_places_in, py::arg("numbers"), py::arg("values"),
        "Where ascending values (k,) uint32 are among ascending numbers, int64, as of np.searchsorted.");
  m.def("sort_pairs", &bound_sort_pairs, py::arg("offset"), py::arg("transposed"), py::arg("pair"),
        py::arg("order"), py::arg("left_out"),
        "Places of edges order (n,) uint32 by the offset (m, pairs) of their block: first (blocks + 1,), "
        "places (k,), their largest bit where transposed (m, pairs), and offset (blocks,), all uint32. "
        "left_out: (m,) bool or None.");
  m.def("take_segments", &bound_take_segments, py::arg("first"), py::arg("chosen"), py::arg("numbers"),
        "Segments of numbers (m,) uint32, those first[s] to first[s + 1], in the order of chosen (k,) int64, "
        "each once, what follows them after: their first (k + 1,) and the numbers.");
  m.def(
      "neighbour_keys", &bound_neighbour_keys, py::arg("rows"), py::arg("slot"), py::arg("other"),
      py::arg("order"), py::arg("first"), py::arg("num_rows"), py::arg("num_others"),
      "(num_rows,) int64: lowest * num_others + highest row in slot `other` of the edges of each row in the "
      "slot, num_others^2 without edges; order, first: edges by that slot, as of sort_by_key.");
  m.def("renumber_rows", &bound_renumber_rows, py::arg("rows"), py::arg("slot"), py::arg("place"),
        "Rows (m, arity) with place[row] for those in the slot.");
  m.def("tile_starts", &bound_tile_starts, py::arg("first"), py::arg("begin"), py::arg("end"),
        py::arg("most"), "First destination of each run of whole destinations with at most `most` edges.");
  m.def("block_rows", &bound_block_rows, py::arg("sources"), py::arg("order"), py::arg("first_block"),
        py::arg("out"),
        "Write columns of int32 arrays, of the edges in this order, as (blocks, columns, 64) into bytes.");
  m.def("block_numbers", &bound_block_numbers, py::arg("sources"), py::arg("rows"), py::arg("order"),
        py::arg("first_block"), py::arg("width"), py::arg("out"),
        "Write columns of float64 arrays, at rows[edge] or edge, in this width as (blocks, columns, 64).");
  m.def("pad_rows", &bound_pad_rows, py::arg("values"), py::arg("record"), py::arg("first_row"),
        py::arg("width"), py::arg("out"), py::arg("order") = py::none(),
        "Write records of (n, k) numbers, each followed by zeros up to `record` numbers, into bytes; order: "
        "(n,) uint32 row of each record.");
  m.def("unpad_rows", &bound_unpad_rows, py::arg("records"), py::arg("record"), py::arg("width"),
        py::arg("chosen"), py::arg("values"), py::arg("order") = py::none(),
        "Write the first numbers of each chosen record, 8 bytes each, to the row of (n, k) values.");
  m.def("row_table", &bound_row_table, py::arg("dims"), py::arg("offset"),
        "(num_scalars, 3) uint32: offset of the row, first scalar row of its block, dimension of its block.");
  m.def("fingerprint", &bound_fingerprint, py::arg("array"),
        "16 bytes that tell contents apart; not secure.");
  m.def("look_up", &bound_look_up, py::arg("ids"), py::arg("low"), py::arg("table"),
        "table[id - low] or -1 for ids (m, k), as int32, and the smallest of them (0 at most).");
  m.def("mark", &bound_mark, py::arg("rows"), py::arg("slot"), py::arg("mask"),
        "mask[row in the slot] = True for all edges.");
  m.def(
      "connected_parts", &bound_connected_parts, py::arg("taken"), py::arg("edges"),
      "Part of each vertex (n,), -1: not taken, and (parts,) bool: an edge of it has one vertex only or one "
      "that is not taken; edges: (vertex rows (m, arity), first number of each slot).");
  m.def("edges_with_free_vertex", &bound_edges_with_free_vertex, py::arg("rows"), py::arg("fixed"),
        "(m,) bool: an edge has a vertex that is not fixed, and how many have; fixed: a mask per slot.");
  m.def("information_kind", &bound_kind, py::arg("information"), py::arg("rows"),
        "\"identity\", \"diagonal\" or \"full\": what these matrices (n, d, d) all are.");
  m.def(
      "all_finite",
      [](const py::array& array) {
        if (!is_plain(array)) return false;
        const auto* const numbers = static_cast<const double*>(array.data());
        const py::ssize_t size = array.size();
        const py::gil_scoped_release release;
        return all_finite(numbers, size);
      },
      py::arg("array"), "Every number is finite; False also for an array that is not contiguous float64.");
  m.def(
      "all_symmetric",
      [](const py::array& matrices) {
        if (!is_plain(matrices) || matrices.ndim() != 3 || matrices.shape(1) != matrices.shape(2))
          return false;
        const auto* const numbers = static_cast<const double*>(matrices.data());
        const py::ssize_t count = matrices.shape(0);
        const int dim = static_cast<int>(matrices.shape(1));
        const py::gil_scoped_release release;
        return all_symmetric(numbers, count, dim);
      },
      py::arg("matrices"),
      "Every matrix (n, d, d) is its own transpose; False also for an array that is not contiguous float64.");
  m.def(
      "couplings", &bound_couplings, py::arg("rows"), py::arg("tables"), py::arg("num_kept"),
      py::arg("num_eliminated"), py::arg("stride"),
      "Per pair of slots how many edges have both vertices optimized, and how many of them an eliminated "
      "one; and (num, 2) int32: (place, kept block) where kept blocks meet: at every `stride`-th eliminated "
      "block, and at edges between kept ones, whose places follow. stride 0: no meetings.");
  m.def("row_numbers", &bound_row_numbers, py::arg("count"), "(count,) int64: 0, 1, ...");
  m.def(
      "table_by_id", &bound_table_by_id, py::arg("ids"), py::arg("low"), py::arg("span"), py::arg("of_rows"),
      "(span,) int32: of each id from `low` on its row in the set of ids that has it, or the number of that "
      "set; -1 for none.");
  m.def("invert_order", &bound_invert_order, py::arg("order"),
        "(m,) uint32: the place of each number in a permutation of 0 to m - 1.");
  m.def("common_step", &bound_common_step, py::arg("numbers"),
        "Difference of neighbouring whole numbers; None: it is not everywhere the same, or there are fewer "
        "than two.");
  m.def(
      "minimise_points", &bound_minimise_points, py::arg("edges"), py::arg("points"), py::arg("bound"),
      py::arg("rounds"), py::arg("iterations"),
      "Move points (n, 3), each alone, towards their minima: chi2 (n,), H (n, 3, 3) and b (n, 3) where they "
      "end, and whether they still fell (n,). 0 rounds: they stay. See native/src/edges/points.h.");
  m.def("viewing_rays", &bound_viewing_rays, py::arg("edges"), py::arg("points"), py::arg("spread"),
        "Centre, direction, distance of the ray of each edge, and whether it is known; points (m, 3) move. "
        "See native/src/edges/rays.h.");
  m.def("candidate_places", &bound_candidate_places, py::arg("rays"), py::arg("num_points"),
        py::arg("fractions"), "Starts (1 + fractions, n, 3) of points: where rays meet, and on their mean.");
  m.def("mark_front", &bound_mark_front, py::arg("rays"), py::arg("places"),
        "(k, n) bool: places (k, n, 3) in front of all cameras whose ray is known.");
  m.def("large_sums", &bound_large_sums, py::arg("sums"), py::arg("first"), py::arg("bound"),
        "Destinations with edges whose sum is above `bound` per edge, or not a number.");
  m.def("edge_outputs", &bound_edge_outputs, py::arg("program"), py::arg("vertices"), py::arg("vertex_rows"),
        py::arg("parameters"), py::arg("parameter_rows"), py::arg("data"), py::arg("rows"),
        "What a program returns for each edge, (num_edges, num_outputs).");
  m.def("sum_chi2", &bound_sum_chi2, py::arg("program"), py::arg("kernel"), py::arg("vertices"),
        py::arg("vertex_rows"), py::arg("parameters"), py::arg("parameter_rows"), py::arg("data"),
        py::arg("rows"), py::arg("order"), py::arg("first"),
        "Robustified chi2 of edges summed by destination, (num_destinations,).");
}
