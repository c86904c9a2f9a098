// What concerns many objects of the g2o interface at once: moving their numbers, and who is where.
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "rows.h"

namespace graphopt::rows {
namespace {

constexpr Py_ssize_t item_size(int column) {
  return kKinds[column] == 'd' ? Py_ssize_t{8} : kKinds[column] == 'i' ? Py_ssize_t{4} : Py_ssize_t{1};
}

class RowList {
 public:
  explicit RowList(const py::list& objects) : size_(static_cast<Py_ssize_t>(objects.size())) {
    PyTypeObject* known = nullptr;
    for (Py_ssize_t i = 0; i < size_; ++i) {
      PyObject* object = PyList_GET_ITEM(objects.ptr(), i);
      if ((Py_TYPE(object) != known && !PyObject_TypeCheck(object, &row_type)) ||
          as_row(object)->chunk == nullptr)
        throw py::type_error("RowList: not an initialized vertex, edge or parameter");
      known = Py_TYPE(object);
      append(as_row(object)->chunk, as_row(object)->row);
    }
  }

  Py_ssize_t size() const { return size_; }

  // A column as a new array.
  py::array column(const std::string& name) const {
    if (runs_.empty()) throw py::value_error("RowList.column: the list is empty");
    const PyObject* like = runs_.front().chunk->arrays[column_of(name)];
    if (like == nullptr) throw py::value_error("RowList: these objects have no column " + name);
    const auto* proxy = py::detail::array_proxy(like);
    std::vector<py::ssize_t> shape(proxy->dimensions, proxy->dimensions + proxy->nd);
    shape[0] = size_;
    py::array out(py::reinterpret_borrow<py::dtype>(proxy->descr), shape);
    gather(name, out);
    return out;
  }

  // Copy a column into an array; whether this changed the array.
  bool take(const std::string& name, const py::array& out) const {
    require_writeable(out);
    bool changed = false;
    visit(name, out, [&](char* numbers, char* own, std::size_t bytes) {
      if (std::memcmp(own, numbers, bytes) == 0) return;
      std::memcpy(own, numbers, bytes);
      changed = true;
    });
    return changed;
  }

  void gather(const std::string& name, const py::array& out) const {
    require_writeable(out);
    visit(name, out, [](char* numbers, char* own, std::size_t bytes) { std::memcpy(own, numbers, bytes); });
  }

  void scatter(const std::string& name, const py::array& values) const {
    visit(name, values,
          [](char* numbers, char* own, std::size_t bytes) { std::memcpy(numbers, own, bytes); });
  }

 private:
  // Consecutive objects of the list that have consecutive rows of a chunk.
  struct Run {
    Chunk* chunk;
    Py_ssize_t row, count;
  };

  void append(Chunk* chunk, Py_ssize_t row) {
    if (!runs_.empty() && runs_.back().chunk == chunk && runs_.back().row + runs_.back().count == row) {
      ++runs_.back().count;
      return;
    }
    if (runs_.empty() || runs_.back().chunk != chunk)
      chunks_.push_back(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(chunk)));
    runs_.push_back({chunk, row, 1});
  }

  static int column_of(const std::string& name) {
    for (int column = 0; column < kColumns; ++column)
      if (name == kNames[column]) return column;
    throw py::value_error("RowList: there is no column " + name);
  }

  static void require_writeable(const py::array& out) {
    if (!out.writeable()) throw py::value_error("RowList: the array cannot be written");
  }

  // visit_run(the numbers of a run, their place in the array, bytes)
  template <class Visit>
  void visit(const std::string& name, const py::array& array, Visit visit_run) const {
    const int column = column_of(name);
    if (!(array.flags() & py::array::c_style) || array.dtype().char_() != kKinds[column] ||
        array.ndim() < 1 || array.shape(0) != size_)
      throw py::value_error("RowList: the array of " + name + " must be contiguous, of type '" +
                            kKinds[column] + "' and of " + std::to_string(size_) + " rows");
    char* own = static_cast<char*>(const_cast<void*>(array.data()));
    for (const Run& run : runs_) {
      const Py_ssize_t row_bytes = run.chunk->row_size[column] * item_size(column);
      if (run.chunk->data[column] == nullptr || row_bytes * size_ != array.nbytes())
        throw py::value_error("RowList: rows of " + name + " have another length than those of the array");
      const Py_ssize_t bytes = run.count * row_bytes;
      visit_run(run.chunk->data[column] + run.row * row_bytes, own, static_cast<std::size_t>(bytes));
      own += bytes;
    }
  }

  Py_ssize_t size_;
  std::vector<Run> runs_;
  std::vector<py::object> chunks_;  // keeps those of the runs
};

// The classes of the objects of a list, each once.
py::list classes(const py::list& objects) {
  py::list found;
  PyTypeObject* last = nullptr;
  for (const py::handle object : objects) {
    if (Py_TYPE(object.ptr()) == last) continue;
    last = Py_TYPE(object.ptr());
    const py::handle type(reinterpret_cast<PyObject*>(last));
    if (!found.contains(type)) found.append(type);
  }
  return found;
}

// Note in each vertex of a list which list that is, and its place there.
void number_vertices(const py::list& vertices, Py_ssize_t list_number) {
  Py_ssize_t place = 0;
  for (const py::handle vertex : vertices) {
    if (!is_vertex(vertex.ptr())) throw py::type_error("number_vertices: not a vertex");
    as_vertex(vertex.ptr())->list_number = list_number;
    as_vertex(vertex.ptr())->list_place = place++;
  }
}

// ((n, arity) places of the vertices of edges in their lists, None or (edge, slot, list) of the first vertex
// that is not of its slot's list), as number_vertices set them.
py::tuple vertex_places(const py::list& edges, const std::vector<Py_ssize_t>& lists) {
  const py::ssize_t count = static_cast<py::ssize_t>(edges.size()),
                    arity = static_cast<py::ssize_t>(lists.size());
  py::array_t<std::int32_t> places({count, arity});
  std::int32_t* place = places.mutable_data();
  py::object wrong = py::none();
  PyTypeObject *edge_type = nullptr, *vertex_type = nullptr;  // known to be types of edges and vertices
  for (py::ssize_t i = 0; i < count; ++i) {
    PyObject* edge = PyList_GET_ITEM(edges.ptr(), i);
    if ((Py_TYPE(edge) != edge_type && !is_edge(edge)) || as_edge(edge)->num_vertices != arity)
      throw py::type_error("vertex_places: not an edge of this number of vertices");
    edge_type = Py_TYPE(edge);
    for (py::ssize_t slot = 0; slot < arity; ++slot) {
      PyObject* vertex = as_edge(edge)->vertices[slot];
      if (vertex == nullptr || (Py_TYPE(vertex) != vertex_type && !is_vertex(vertex)))
        throw py::type_error("vertex_places: a vertex is missing");
      vertex_type = Py_TYPE(vertex);
      const Py_ssize_t number = as_vertex(vertex)->list_number;
      if (number != lists[static_cast<std::size_t>(slot)] && wrong.is_none())
        wrong = py::make_tuple(i, slot, number);
      *place++ = static_cast<std::int32_t>(as_vertex(vertex)->list_place);
    }
  }
  return py::make_tuple(places, wrong);
}

// The edges of a list that have all their vertices: the list itself where all have.
py::list complete_edges(const py::list& edges) {
  const auto is_complete = [](const py::handle& edge) {
    if (!is_edge(edge.ptr())) throw py::type_error("complete_edges: not an edge");
    const EdgeRow& row = *as_edge(edge.ptr());
    for (Py_ssize_t i = 0; i < row.num_vertices; ++i)
      if (row.vertices[i] == nullptr) return false;
    return row.vertices != nullptr;
  };
  if (std::all_of(edges.begin(), edges.end(), is_complete)) return edges;
  py::list result;
  for (const py::handle edge : edges)
    if (is_complete(edge)) result.append(edge);
  return result;
}

}  // namespace

void bind_row_lists(py::module_& m) {
  py::class_<RowList>(m, "RowList", "Rows of a list of objects, for moving all their numbers at once.")
      .def(py::init<const py::list&>(), py::arg("objects"))
      .def_property_readonly("size", &RowList::size, "Number of objects.")
      .def("column", &RowList::column, py::arg("name"), "One column of all objects as a new array.")
      .def("gather", &RowList::gather, py::arg("name"), py::arg("out"),
           "Copy one column of all objects into an array (size, ...), in the order of the list.")
      .def("take", &RowList::take, py::arg("name"), py::arg("out"),
           "As `gather`; True if the array had other numbers before.")
      .def("scatter", &RowList::scatter, py::arg("name"), py::arg("values"), "The opposite of `gather`.");
  m.def("classes", &classes, py::arg("objects"), "The classes of the objects of a list, each once.");
  m.def("number_vertices", &number_vertices, py::arg("vertices"), py::arg("list_number"),
        "Note in each vertex of a list the number of the list and its place there.");
  m.def("vertex_places", &vertex_places, py::arg("edges"), py::arg("lists"),
        "((n, arity) places of the vertices of edges in their lists, None or (edge, slot, list) of the first "
        "vertex "
        "that is not in its slot's list).");
  m.def("complete_edges", &complete_edges, py::arg("edges"), "The edges of a list that have all vertices.");
}

}  // namespace graphopt::rows
