// Bindings of what assigns the edges of a graph to ranks, and picks the rows of each.
#include "edges/edge_partition.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "edges/picking.h"
#include "edges/shares.h"
#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::edges;

namespace {

using namespace graphopt::bindings;

template <class T>
using Array = ExactArray<T>;

template <class T>
void require_below(const Array<T>& numbers, std::int64_t least, std::int64_t end, const char* what) {
  std::atomic<bool> fits{true};
  {
    const T* data = numbers.data();
    const py::gil_scoped_release unlocked;
    for_each_share(numbers.size(), [&](std::int64_t i, std::int64_t stop) {
      bool own = true;
      for (; i < stop; ++i) own &= data[i] >= least && data[i] < end;
      if (!own) fits = false;
    });
  }
  require(fits, what);
}

// Keeps the arrays.
class BoundPartition {
 public:
  BoundPartition(const py::object& kept, const py::object& eliminated, std::int64_t num_kept,
                 std::int64_t num_eliminated)
      : kept_(exact<std::int32_t>(kept, "kept", 2)), num_kept_(num_kept) {
    const auto gone = exact<std::int32_t>(eliminated, "eliminated", 1);
    require(kept_.shape(0) == gone.size(), "kept and eliminated must have a row per edge");
    require(num_kept >= 0 && num_eliminated >= 0, "numbers of vertices are not negative");
    require(num_eliminated + gone.size() < INT32_MAX, "there are more edges than 32 bits can number");
    require_below(kept_, INT32_MIN, num_kept, "kept names a vertex that there is not");
    require_below(gone, INT32_MIN, num_eliminated, "eliminated names a vertex that there is not");
    const auto arity = static_cast<int>(kept_.shape(1));
    const std::int32_t *slots = kept_.data(), *of_edge = gone.data();
    const py::gil_scoped_release unlocked;
    partition_ =
        std::make_unique<EdgePartition>(slots, arity, of_edge, gone.size(), num_kept, num_eliminated);
  }

  std::int64_t num_items() const { return partition_->num_items(); }
  py::array weights() const { return as_array(partition_->weights()); }
  py::array degrees() const { return as_array(partition_->degrees()); }

  py::tuple covisibility(std::int64_t most) const {
    require(most > 0, "most must be positive");
    Covisibility found;
    {
      const py::gil_scoped_release unlocked;
      found = partition_->covisibility(most);
    }
    return py::make_tuple(as_array(std::move(found.begin)), as_array(std::move(found.neighbor)),
                          as_array(std::move(found.count)));
  }

  py::array slabs(const py::object& place, int num_ranks) const {
    const auto places = of_kept(place, "place", num_ranks, num_kept_);
    const std::int32_t* data = places.data();
    Ranks ranks;
    {
      const py::gil_scoped_release unlocked;
      ranks = partition_->slabs(data, num_ranks);
    }
    return as_array(std::move(ranks));
  }

  py::array nearest(const py::object& label, int num_ranks, double room) const {
    const auto labels = of_kept(label, "label", num_ranks, num_ranks);
    const std::int32_t* data = labels.data();
    Ranks ranks;
    {
      const py::gil_scoped_release unlocked;
      ranks = partition_->nearest(data, num_ranks, room);
    }
    return as_array(std::move(ranks));
  }

  py::tuple assign(const py::object& ranks, int num_ranks) const {
    const auto of_items = exact<std::uint16_t>(ranks, "ranks", 1);
    require(of_items.size() == num_items(), "ranks must have one entry per item");
    require_ranks(num_ranks);
    require_below(of_items, 0, num_ranks, "ranks names a rank that there is not");
    Array<std::uint16_t> edges(kept_.shape(0));
    const std::uint16_t* data = of_items.data();
    std::uint16_t* out = edges.mutable_data();
    Assignment found;
    {
      const py::gil_scoped_release unlocked;
      found = partition_->assign(data, num_ranks, out);
    }
    return py::make_tuple(std::move(edges), as_array(std::move(found.counts)), found.copies);
  }

 private:
  static void require_ranks(int num_ranks) {
    require(num_ranks > 0 && num_ranks <= UINT16_MAX, "num_ranks must be 1 .. 65535");
  }

  Array<std::int32_t> of_kept(const py::object& values, const char* name, int num_ranks,
                              std::int64_t end) const {
    auto array = exact<std::int32_t>(values, name, 1);
    require(array.size() == num_kept_, "there must be one entry per kept vertex");
    require_ranks(num_ranks);
    require_below(array, 0, end, "an entry is outside");
    return array;
  }

  Array<std::int32_t> kept_;
  std::int64_t num_kept_;
  std::unique_ptr<EdgePartition> partition_;
};

// Bytes of a row of arrays that have rows of one kind; `few` has a row per index into `many`.
std::int64_t same_rows(const py::array& many, const py::array& few, const Array<std::int64_t>& index,
                       const char* names) {
  std::int64_t row_bytes = many.itemsize(), of_few = few.itemsize();
  for (py::ssize_t i = 1; i < many.ndim(); ++i) row_bytes *= many.shape(i);
  for (py::ssize_t i = 1; i < few.ndim(); ++i) of_few *= few.shape(i);
  require((many.flags() & py::array::c_style) != 0 && (few.flags() & py::array::c_style) != 0 &&
              many.ndim() > 0 && few.ndim() > 0 && few.shape(0) == index.size() &&
              many.dtype().equal(few.dtype()) && row_bytes == of_few,
          names);
  require_below(index, 0, many.shape(0), "index names a row that there is not");
  return row_bytes;
}

void bound_take_rows(const py::array& values, const py::object& index, const py::array& out) {
  const auto chosen = exact<std::int64_t>(index, "index", 1);
  const std::int64_t row_bytes = same_rows(
      values, out, chosen,
      "values and out must be C-contiguous, of one type, with rows of one length, and out has a row "
      "per index");
  require(out.writeable(), "out must be writeable");
  if (row_bytes == 0) return;
  const auto* from = static_cast<const unsigned char*>(values.data());
  auto* to = static_cast<unsigned char*>(const_cast<void*>(out.data()));
  const std::int64_t* rows = chosen.data();
  const std::int64_t size = chosen.size();
  const py::gil_scoped_release unlocked;
  take_rows(from, row_bytes, rows, size, to);
}

void bound_put_rows(const py::array& values, const py::object& index, const py::array& target) {
  const auto chosen = exact<std::int64_t>(index, "index", 1);
  const std::int64_t row_bytes = same_rows(
      target, values, chosen,
      "values and target must be C-contiguous, of one type, with rows of one length, and values has "
      "a row per index");
  require(target.writeable(), "target must be writeable");
  if (row_bytes == 0) return;
  const auto* from = static_cast<const unsigned char*>(values.data());
  auto* to = static_cast<unsigned char*>(const_cast<void*>(target.data()));
  const std::int64_t* rows = chosen.data();
  const std::int64_t size = chosen.size();
  const py::gil_scoped_release unlocked;
  put_rows(from, row_bytes, rows, size, to);
}

void bound_mark_chosen(const py::object& rows, int slot, const py::object& index, const py::object& mask) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto i = exact<std::int64_t>(index, "index", 1);
  auto m = exact<bool>(mask, "mask", 1);
  require(slot >= 0 && slot < r.shape(1), "there is no such slot");
  require_below(i, 0, r.shape(0), "index names a row that there is not");
  const std::int32_t* first = r.data() + slot;
  const auto stride = static_cast<int>(r.shape(1));
  bool* flags = m.mutable_data();
  const std::int64_t* chosen = i.data();
  const std::int64_t size = i.size();
  const py::gil_scoped_release unlocked;
  mark_chosen(first, stride, chosen, size, flags);
}

py::array bound_places_of(const py::object& values, std::uint16_t value) {
  const auto v = exact<std::uint16_t>(values, "values", 1);
  const std::uint16_t* data = v.data();
  const std::int64_t size = v.size();
  std::vector<std::int64_t> found;
  {
    const py::gil_scoped_release unlocked;
    found = places_of(data, size, value);
  }
  return as_array(std::move(found));
}

void bound_number_slot(const py::object& rows, int slot, const py::object& number, const py::object& gone,
                       std::int64_t first, const py::object& kept, int kept_slot,
                       const py::object& eliminated) {
  const auto r = exact<std::int32_t>(rows, "rows", 2);
  const auto n = exact<std::int32_t>(number, "number", 1);
  const auto g = exact<bool>(gone, "gone", 1);
  auto k = exact<std::int32_t>(kept, "kept", 2);
  auto e = exact<std::int32_t>(eliminated, "eliminated", 1);
  require(slot >= 0 && slot < r.shape(1) && kept_slot >= 0 && kept_slot < k.shape(1),
          "there is no such slot");
  require(n.size() == g.size(), "number and gone must have one entry per vertex");
  require(first >= 0 && first + r.shape(0) <= k.shape(0) && k.shape(0) == e.size(),
          "kept and eliminated must have a row per edge");
  const auto stride = static_cast<int>(r.shape(1)), kept_stride = static_cast<int>(k.shape(1));
  const std::int32_t *from = r.data() + slot, *numbers = n.data();
  const bool* flags = g.data();
  std::int32_t* to = k.mutable_data() + first * kept_stride + kept_slot;
  std::int32_t* out = e.mutable_data() + first;
  const std::int64_t num_edges = r.shape(0);
  const py::gil_scoped_release unlocked;
  number_slot(from, stride, num_edges, numbers, flags, to, kept_stride, out);
}

}  // namespace

void bind_edge_partition(py::module_& m) {
  py::class_<BoundPartition>(m, "EdgePartition",
                             "Edges that are assigned to ranks; items are what goes as a whole.")
      .def(py::init<const py::object&, const py::object&, std::int64_t, std::int64_t>(), py::arg("kept"),
           py::arg("eliminated"), py::arg("num_kept"), py::arg("num_eliminated"))
      .def_property_readonly("num_items", &BoundPartition::num_items)
      .def("weights", &BoundPartition::weights, "(num_items,) int64: edges of each item.")
      .def("degrees", &BoundPartition::degrees, "(num_kept,) int64: slots with each kept vertex.")
      .def("covisibility", &BoundPartition::covisibility, py::arg("most"),
           "begin (num_kept + 1,) int64, neighbor and count int32: who meets whom, and how often.")
      .def("slabs", &BoundPartition::slabs, py::arg("place"), py::arg("num_ranks"),
           "(num_items,) uint16 ranks: items by the mean place of their kept vertices, cut into equal "
           "weights.")
      .def("nearest", &BoundPartition::nearest, py::arg("label"), py::arg("num_ranks"), py::arg("room"),
           "(num_items,) uint16 ranks: where most kept vertices of an item are, while there is room.")
      .def("assign", &BoundPartition::assign, py::arg("ranks"), py::arg("num_ranks"),
           "Of ranks of items: (m,) uint16 ranks of edges, (num_ranks,) int64 edges of each, copies.");
  m.def("take_rows", &bound_take_rows, py::arg("values"), py::arg("index"), py::arg("out"),
        "out[...] = values[index].");
  m.def("put_rows", &bound_put_rows, py::arg("values"), py::arg("index"), py::arg("target"),
        "target[index] = values; no index twice.");
  m.def("mark_chosen", &bound_mark_chosen, py::arg("rows"), py::arg("slot"), py::arg("index"),
        py::arg("mask"), "mask[rows[index, slot]] = True.");
  m.def("places_of", &bound_places_of, py::arg("values"), py::arg("value"),
        "int64, ascending: where uint16 values are this one.");
  m.def("number_slot", &bound_number_slot, py::arg("rows"), py::arg("slot"), py::arg("number"),
        py::arg("gone"), py::arg("first"), py::arg("kept"), py::arg("kept_slot"), py::arg("eliminated"),
        "Numbers of the vertices in a slot of edges: into kept, or eliminated, from row `first` on.");
}
