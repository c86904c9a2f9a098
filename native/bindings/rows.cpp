// What the objects of the g2o interface share: rows of arrays, and methods on them that need no bytecode.
//
//     Chunk      columns (numpy arrays of one length) by name; hands out its rows
//     Row        an object that has a row of a chunk
//     VertexRow, EdgeRow    with the attributes of vertices and edges
//     fast_method, fast_property    a Python method or property, and what it does in the usual case
//
// The classes in graphopt/g2o derive from these. A fast method does the usual case itself (the types are
// those expected, nothing is missing) and leaves everything else, and all errors, to the Python function it
// wraps.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vm/lanes.h"
#include "vm/program.h"

namespace py = pybind11;
using namespace graphopt::vm;

namespace {

// -------------------------------------------------------------------- chunks

enum Column { kEstimate, kFixed, kMarginalized, kMeasurement, kInformation, kError, kChi2, kLevel, kColumns };
const char* const kNames[kColumns] = {"estimate",    "fixed", "marginalized", "measurement",
                                      "information", "error", "chi2",         "level"};
const char kKinds[kColumns] = {'d', '?', '?', 'd', 'd', 'd', 'd', 'i'};

struct Chunk {
  PyObject_HEAD PyObject* arrays[kColumns];
  char* data[kColumns];
  Py_ssize_t row_size[kColumns];  // numbers of a row
  Py_ssize_t num_rows, next_row, number;
};

struct Row {
  PyObject_HEAD Chunk* chunk;
  Py_ssize_t row;
};

struct VertexRow {
  Row base;
  PyObject *id, *graph, *data, *stack;
  Py_ssize_t hessian_index, col;
};

struct EdgeRow {
  Row base;
  PyObject *id, *graph, *data, *vertices, *kernel, *parameters, *jacobians;
  Py_ssize_t internal_id;
};

// GCC warns about the missing initialisers of these tables, which C++17 sets to zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
PyTypeObject chunk_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject vertex_row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject edge_row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject method_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject property_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject* array_type = nullptr;
PyObject* double_dtype = nullptr;
PyObject *pool_name = nullptr, *chunk_name = nullptr, *grow_name = nullptr, *arity_name = nullptr,
         *delta_name = nullptr, *unset_id = nullptr;

Row* as_row(PyObject* object) { return reinterpret_cast<Row*>(object); }
Chunk* as_chunk(PyObject* object) { return reinterpret_cast<Chunk*>(object); }

// The numbers of an object's row, null if it has none of this column.
template <class T>
T* numbers(PyObject* object, int column) {
  const Row* row = as_row(object);
  const Chunk* chunk = row->chunk;
  if (chunk == nullptr || chunk->data[column] == nullptr || row->row < 0 || row->row >= chunk->num_rows)
    return nullptr;
  return reinterpret_cast<T*>(chunk->data[column]) + row->row * chunk->row_size[column];
}

PyObject* chunk_get(PyObject* self, void* closure) {
  PyObject* array = as_chunk(self)->arrays[reinterpret_cast<std::intptr_t>(closure)];
  if (array == nullptr) {
    PyErr_Format(PyExc_AttributeError, "this chunk has no column %s",
                 kNames[reinterpret_cast<std::intptr_t>(closure)]);
    return nullptr;
  }
  return Py_NewRef(array);
}

int chunk_set(PyObject* self, PyObject* value, void* closure) {
  const std::intptr_t column = reinterpret_cast<std::intptr_t>(closure);
  Chunk* chunk = as_chunk(self);
  if (value == nullptr || !py::isinstance<py::array>(value)) {
    PyErr_Format(PyExc_TypeError, "column %s must be an array", kNames[column]);
    return -1;
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (!(array.flags() & py::array::c_style) || array.ndim() < 1 || array.shape(0) != chunk->num_rows ||
      array.dtype().char_() != kKinds[column]) {
    PyErr_Format(PyExc_ValueError, "column %s must be contiguous, of type '%c' and of %zd rows",
                 kNames[column], kKinds[column], chunk->num_rows);
    return -1;
  }
  Py_XSETREF(chunk->arrays[column], Py_NewRef(value));
  chunk->data[column] = static_cast<char*>(const_cast<void*>(array.data()));
  chunk->row_size[column] = chunk->num_rows > 0 ? array.size() / chunk->num_rows : 0;
  return 0;
}

int chunk_init(PyObject* self, PyObject* args, PyObject*) {
  Chunk* chunk = as_chunk(self);
  return PyArg_ParseTuple(args, "nn", &chunk->num_rows, &chunk->number) ? 0 : -1;
}

void chunk_dealloc(PyObject* self) {
  for (PyObject*& array : as_chunk(self)->arrays) Py_CLEAR(array);
  Py_TYPE(self)->tp_free(self);
}

PyObject* chunk_take(PyObject* self, PyObject*) {
  Chunk* chunk = as_chunk(self);
  return PyLong_FromSsize_t(chunk->next_row < chunk->num_rows ? chunk->next_row++ : -1);
}

PyGetSetDef chunk_columns[kColumns + 1];
PyMemberDef chunk_members[] = {
    {"number", T_PYSSIZET, offsetof(Chunk, number), READONLY, "Number of the chunk."},
    {"num_rows", T_PYSSIZET, offsetof(Chunk, num_rows), READONLY, "Rows."},
    {}};
PyMethodDef chunk_methods[] = {
    {"take", chunk_take, METH_NOARGS, "The next row that no object has, -1 if all are taken."}, {}};

// -------------------------------------------------------------------- rows

PyObject* row_get_chunk(PyObject* self, void*) {
  PyObject* chunk = reinterpret_cast<PyObject*>(as_row(self)->chunk);
  if (chunk == nullptr) {
    PyErr_Format(PyExc_AttributeError, "this %s was not initialized: call super().__init__() first",
                 Py_TYPE(self)->tp_name);
    return nullptr;
  }
  return Py_NewRef(chunk);
}

int row_set_chunk(PyObject* self, PyObject* value, void*) {
  if (value == nullptr || !PyObject_TypeCheck(value, &chunk_type)) {
    PyErr_SetString(PyExc_TypeError, "_chunk must be a Chunk");
    return -1;
  }
  Chunk* old = as_row(self)->chunk;
  as_row(self)->chunk = as_chunk(Py_NewRef(value));
  Py_XDECREF(old);
  return 0;
}

// Take a row of the pool in the attribute `_pool`.
bool take_row(PyObject* self) {
  PyObject* pool = PyObject_GetAttr(self, pool_name);
  if (pool == nullptr) return false;
  PyObject* chunk = PyObject_GetAttr(pool, chunk_name);
  while (chunk != nullptr) {
    if (!PyObject_TypeCheck(chunk, &chunk_type)) {
      PyErr_SetString(PyExc_TypeError, "a pool's chunk must be a Chunk");
      Py_CLEAR(chunk);
      break;
    }
    Chunk* taken = as_chunk(chunk);
    if (taken->next_row < taken->num_rows) {
      Row* row = as_row(self);
      row->row = taken->next_row++;
      Chunk* old = row->chunk;
      row->chunk = taken;
      Py_XDECREF(old);
      Py_DECREF(pool);
      return true;
    }
    Py_DECREF(chunk);
    chunk = PyObject_CallMethodNoArgs(pool, grow_name);
  }
  Py_DECREF(pool);
  return false;
}

PyGetSetDef row_getset[] = {{"_chunk", row_get_chunk, row_set_chunk, "Where the row is.", nullptr}, {}};
PyMemberDef row_members[] = {{"_row", T_PYSSIZET, offsetof(Row, row), 0, "Number of the row."}, {}};

// The object attributes of a type, for the garbage collector.
template <class T>
struct Objects;
template <>
struct Objects<VertexRow> {
  static constexpr PyObject* VertexRow::*all[] = {&VertexRow::id, &VertexRow::graph, &VertexRow::data,
                                                  &VertexRow::stack};
};
template <>
struct Objects<EdgeRow> {
  static constexpr PyObject* EdgeRow::*all[] = {&EdgeRow::id,       &EdgeRow::graph,  &EdgeRow::data,
                                                &EdgeRow::vertices, &EdgeRow::kernel, &EdgeRow::parameters,
                                                &EdgeRow::jacobians};
};

template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  for (auto member : Objects<T>::all) Py_VISIT(reinterpret_cast<T*>(self)->*member);
  return 0;
}

template <class T>
int clear(PyObject* self) {
  for (auto member : Objects<T>::all) Py_CLEAR(reinterpret_cast<T*>(self)->*member);
  return 0;
}

template <class T>
void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear<T>(self);
  PyObject* chunk = reinterpret_cast<PyObject*>(as_row(self)->chunk);
  as_row(self)->chunk = nullptr;
  Py_XDECREF(chunk);
  Py_TYPE(self)->tp_free(self);
}

// The argument `id` of __init__; a new reference.
PyObject* id_argument(PyObject* self, PyObject* args, PyObject* keywords) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  if (count == 0 && (keywords == nullptr || PyDict_GET_SIZE(keywords) == 0)) return Py_NewRef(unset_id);
  PyObject* given = nullptr;
  static const char* names[] = {"id", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O", const_cast<char**>(names), &given)) return nullptr;
  if (PyLong_CheckExact(given)) return Py_NewRef(given);
  PyObject* id = PyNumber_Index(given);
  if (id == nullptr)
    PyErr_Format(PyExc_TypeError, "%s(id): an id must be an integer", Py_TYPE(self)->tp_name);
  return id;
}

int vertex_init(PyObject* self, PyObject* args, PyObject* keywords) {
  PyObject* id = id_argument(self, args, keywords);
  if (id == nullptr) return -1;
  VertexRow* vertex = reinterpret_cast<VertexRow*>(self);
  Py_XSETREF(vertex->id, id);
  Py_CLEAR(vertex->graph);
  Py_CLEAR(vertex->data);
  Py_CLEAR(vertex->stack);
  vertex->hessian_index = vertex->col = -1;
  return take_row(self) ? 0 : -1;
}

int edge_init(PyObject* self, PyObject* args, PyObject* keywords) {
  PyObject* id = id_argument(self, args, keywords);
  if (id == nullptr) return -1;
  EdgeRow* edge = reinterpret_cast<EdgeRow*>(self);
  Py_XSETREF(edge->id, id);
  PyObject* number = PyObject_GetAttr(self, arity_name);
  if (number == nullptr) return -1;
  const Py_ssize_t arity = PyLong_AsSsize_t(number);
  Py_DECREF(number);
  if (arity < 0) return -1;
  PyObject* vertices = PyList_New(arity);
  if (vertices == nullptr) return -1;
  for (Py_ssize_t i = 0; i < arity; ++i) PyList_SET_ITEM(vertices, i, Py_NewRef(Py_None));
  Py_XSETREF(edge->vertices, vertices);
  Py_CLEAR(edge->graph);
  Py_CLEAR(edge->data);
  Py_CLEAR(edge->kernel);
  Py_CLEAR(edge->parameters);
  Py_CLEAR(edge->jacobians);
  edge->internal_id = -1;
  return take_row(self) ? 0 : -1;
}

// Whether the edge can join a graph: it is in none, and all its vertices are different ones of that graph.
PyObject* edge_fits(PyObject* self, PyObject* graph) {
  const EdgeRow* edge = reinterpret_cast<EdgeRow*>(self);
  if ((edge->graph != nullptr && edge->graph != Py_None) || edge->vertices == nullptr ||
      !PyList_CheckExact(edge->vertices))
    Py_RETURN_FALSE;
  const Py_ssize_t count = PyList_GET_SIZE(edge->vertices);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* vertex = PyList_GET_ITEM(edge->vertices, i);
    if (!PyObject_TypeCheck(vertex, &vertex_row_type) || reinterpret_cast<VertexRow*>(vertex)->graph != graph)
      Py_RETURN_FALSE;
    for (Py_ssize_t j = 0; j < i; ++j)
      if (PyList_GET_ITEM(edge->vertices, j) == vertex) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

#define OBJECT(type, name, text) \
  { "_" #name, T_OBJECT, offsetof(type, name), 0, text }
PyMemberDef vertex_members[] = {
    OBJECT(VertexRow, id, "Id."),
    OBJECT(VertexRow, graph, "The graph, or None."),
    OBJECT(VertexRow, data, "User data, or None."),
    OBJECT(VertexRow, stack, "Pushed estimates, or None."),
    {"_hessian_index", T_PYSSIZET, offsetof(VertexRow, hessian_index), 0, "Number in the Hessian, or -1."},
    {"_col", T_PYSSIZET, offsetof(VertexRow, col), 0, "What set_col_in_hessian set."},
    {}};
PyMemberDef edge_members[] = {
    OBJECT(EdgeRow, id, "Id."),
    OBJECT(EdgeRow, graph, "The graph, or None."),
    OBJECT(EdgeRow, data, "User data, or None."),
    OBJECT(EdgeRow, vertices, "Vertices."),
    OBJECT(EdgeRow, kernel, "Robust kernel, or None."),
    OBJECT(EdgeRow, parameters, "Ids of the parameters, or None."),
    OBJECT(EdgeRow, jacobians, "Last Jacobians, or None."),
    {"_internal_id", T_PYSSIZET, offsetof(EdgeRow, internal_id), 0, "Place in the graph, or -1."},
    {}};
PyMethodDef edge_methods[] = {{"_fits", edge_fits, METH_O,
                               "The edge is in no graph and its vertices are different ones of this graph."},
                              {}};

// -------------------------------------------------------------------- fast methods and properties

enum Action { kGet, kSet };

struct Fast {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* python;  // the function or property
  int action, column;
  Py_ssize_t first, count;  // numbers of the row; count -1: all
  bool forgets_chi2, single;
};

Fast* as_fast(PyObject* object) { return reinterpret_cast<Fast*>(object); }

bool owns_column(PyObject* object, const Fast& fast) {
  return PyObject_TypeCheck(object, &row_type) && numbers<char>(object, fast.column) != nullptr;
}

// The value in Python's terms, null without an error if the Python function has to do it.
PyObject* read(PyObject* object, const Fast& fast) {
  switch (kKinds[fast.column]) {
    case 'd': {
      const double x = numbers<double>(object, fast.column)[fast.first];
      return std::isnan(x) ? nullptr : PyFloat_FromDouble(x);
    }
    case 'i':
      return PyLong_FromLong(numbers<std::int32_t>(object, fast.column)[fast.first]);
    default:
      return PyBool_FromLong(numbers<bool>(object, fast.column)[fast.first]);
  }
}

bool write_doubles(PyObject* object, const Fast& fast, PyObject* value) {
  const Py_ssize_t row_size = as_row(object)->chunk->row_size[fast.column];
  const Py_ssize_t count = fast.count < 0 ? row_size : fast.count;
  if (fast.first + count > row_size) return false;
  double* out = numbers<double>(object, fast.column) + fast.first;
  if (PyFloat_CheckExact(value) && count == 1 && fast.count == 1) {
    const double x = PyFloat_AS_DOUBLE(value);
    *out = fast.single ? static_cast<double>(static_cast<float>(x)) : x;
  } else if (Py_TYPE(value) == array_type && !fast.single) {
    const auto* array = py::detail::array_proxy(value);
    if (array->descr != double_dtype || !(array->flags & py::array::c_style)) return false;
    const bool is_vector = array->nd == 1 && array->dimensions[0] == count && fast.column != kInformation;
    const bool is_matrix = array->nd == 2 && array->dimensions[0] == array->dimensions[1] &&
                           array->dimensions[0] * array->dimensions[0] == count &&
                           fast.column == kInformation;
    if (!is_vector && !is_matrix) return false;
    std::memcpy(out, array->data, static_cast<std::size_t>(count) * sizeof(double));
  } else {
    return false;
  }
  if (fast.forgets_chi2)
    if (double* chi2 = numbers<double>(object, kChi2)) *chi2 = std::nan("");
  return true;
}

// False without an error if the Python function has to do it.
bool write(PyObject* object, const Fast& fast, PyObject* value) {
  switch (kKinds[fast.column]) {
    case 'd':
      return write_doubles(object, fast, value);
    case 'i': {
      if (!PyLong_CheckExact(value)) return false;
      int overflow = 0;
      const long x = PyLong_AsLongAndOverflow(value, &overflow);
      if (overflow != 0 || x < INT_MIN || x > INT_MAX) return false;
      *numbers<std::int32_t>(object, fast.column) = static_cast<std::int32_t>(x);
      return true;
    }
    default:
      if (value != Py_True && value != Py_False) return false;
      *numbers<bool>(object, fast.column) = value == Py_True;
      return true;
  }
}

PyObject* method_call(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  const Fast& fast = *as_fast(self);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (names == nullptr && count == (fast.action == kGet ? 1 : 2) && owns_column(args[0], fast)) {
    if (fast.action == kGet) {
      if (PyObject* value = read(args[0], fast)) return value;
      if (PyErr_Occurred()) return nullptr;
    } else if (write(args[0], fast, args[1])) {
      Py_RETURN_NONE;
    }
  }
  return PyObject_Vectorcall(fast.python, args, flags, names);
}

PyObject* method_bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

// Everything else (name, documentation, signature) is the Python function's.
PyObject* fast_attribute(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(as_fast(self)->python, name);
}

PyObject* property_get(PyObject* self, PyObject* object, PyObject* type) {
  const Fast& fast = *as_fast(self);
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  if (fast.count == 1 && owns_column(object, fast))
    if (PyObject* value = read(object, fast)) return value;
  if (PyErr_Occurred()) return nullptr;
  return Py_TYPE(fast.python)->tp_descr_get(fast.python, object, type);
}

int property_set(PyObject* self, PyObject* object, PyObject* value) {
  const Fast& fast = *as_fast(self);
  if (value != nullptr && owns_column(object, fast) && write(object, fast, value)) return 0;
  return Py_TYPE(fast.python)->tp_descr_set(fast.python, object, value);
}

void fast_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_CLEAR(as_fast(self)->python);
  Py_TYPE(self)->tp_free(self);
}

int fast_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_fast(self)->python);
  return 0;
}

int fast_clear(PyObject* self) {
  Py_CLEAR(as_fast(self)->python);
  return 0;
}

py::object make_fast(PyTypeObject& type, const py::object& python, Action action, const std::string& column,
                     Py_ssize_t first, Py_ssize_t count, bool forgets_chi2, bool single) {
  int number = 0;
  while (number < kColumns && column != kNames[number]) ++number;
  if (number == kColumns) throw py::value_error("there is no column " + column);
  Fast* fast = PyObject_GC_New(Fast, &type);
  if (fast == nullptr) throw py::error_already_set();
  fast->vectorcall = method_call;
  fast->python = Py_NewRef(python.ptr());
  fast->action = action;
  fast->column = number;
  fast->first = first;
  fast->count = count;
  fast->forgets_chi2 = forgets_chi2;
  fast->single = single;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(fast));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(fast));
}

// -------------------------------------------------------------------- many objects at once

// A slice where the numbers are consecutive, else an array of them.
py::object compact(const std::vector<std::int64_t>& numbers) {
  bool is_consecutive = true;
  for (std::size_t i = 1; i < numbers.size() && is_consecutive; ++i)
    is_consecutive = numbers[i] == numbers[i - 1] + 1;
  if (is_consecutive) return py::slice(numbers.front(), numbers.back() + 1, 1);
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(numbers.size()), numbers.data());
}

// Per chunk that objects of a list have rows of: (chunk, places in the list, rows).
py::list places_of(const py::list& objects) {
  struct Part {
    Chunk* chunk;
    std::vector<std::int64_t> places, rows;
  };
  std::vector<Part> parts;
  std::unordered_map<Chunk*, std::size_t> known;
  std::size_t part = 0;
  for (py::ssize_t i = 0; i < static_cast<py::ssize_t>(objects.size()); ++i) {
    PyObject* object = PyList_GET_ITEM(objects.ptr(), i);
    if (!PyObject_TypeCheck(object, &row_type) || as_row(object)->chunk == nullptr)
      throw py::type_error("places_of: not an initialized vertex, edge or parameter");
    Chunk* chunk = as_row(object)->chunk;
    if (parts.empty() || parts[part].chunk != chunk) {
      const auto [place, is_new] = known.try_emplace(chunk, parts.size());
      if (is_new) parts.push_back({chunk, {}, {}});
      part = place->second;
    }
    parts[part].places.push_back(i);
    parts[part].rows.push_back(as_row(object)->row);
  }
  py::list result;
  for (const Part& one : parts)
    result.append(py::make_tuple(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(one.chunk)),
                                 compact(one.places), compact(one.rows)));
  return result;
}

// (n, arity) ids of the vertices of edges.
py::array_t<std::int64_t> vertex_ids(const py::list& edges, py::ssize_t arity) {
  py::array_t<std::int64_t> ids({static_cast<py::ssize_t>(edges.size()), arity});
  std::int64_t* out = ids.mutable_data();
  for (const py::handle edge : edges) {
    PyObject* vertices = PyObject_TypeCheck(edge.ptr(), &edge_row_type)
                             ? reinterpret_cast<EdgeRow*>(edge.ptr())->vertices
                             : nullptr;
    if (vertices == nullptr || !PyList_CheckExact(vertices) || PyList_GET_SIZE(vertices) != arity)
      throw py::type_error("vertex_ids: not an edge of this number of vertices");
    for (py::ssize_t slot = 0; slot < arity; ++slot) {
      PyObject* vertex = PyList_GET_ITEM(vertices, slot);
      if (!PyObject_TypeCheck(vertex, &vertex_row_type))
        throw py::type_error("vertex_ids: a vertex is missing");
      *out = PyLong_AsLongLong(reinterpret_cast<VertexRow*>(vertex)->id);
      if (*out++ == -1 && PyErr_Occurred()) throw py::error_already_set();
    }
  }
  return ids;
}

// (classes of the robust kernels, (n,) which of them or -1, (n,) their `_delta`) of edges.
py::tuple robust_kernels(const py::list& edges) {
  const py::ssize_t count = static_cast<py::ssize_t>(edges.size());
  py::array_t<std::int32_t> which(count);
  py::array_t<double> widths(count);
  std::int32_t* w = which.mutable_data();
  double* delta = widths.mutable_data();
  std::vector<PyTypeObject*> classes;
  for (py::ssize_t i = 0; i < count; ++i) {
    PyObject* edge = PyList_GET_ITEM(edges.ptr(), i);
    if (!PyObject_TypeCheck(edge, &edge_row_type)) throw py::type_error("robust_kernels: not an edge");
    PyObject* kernel = reinterpret_cast<EdgeRow*>(edge)->kernel;
    w[i] = -1;
    delta[i] = 1.0;
    if (kernel == nullptr || kernel == Py_None) continue;
    const auto found = std::find(classes.begin(), classes.end(), Py_TYPE(kernel));
    w[i] = static_cast<std::int32_t>(found - classes.begin());
    if (found == classes.end()) classes.push_back(Py_TYPE(kernel));
    PyObject* value = PyObject_GetAttr(kernel, delta_name);
    delta[i] = value == nullptr ? -1.0 : PyFloat_AsDouble(value);
    Py_XDECREF(value);
    if (PyErr_Occurred()) throw py::error_already_set();
  }
  py::list result;
  for (PyTypeObject* one : classes)
    result.append(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(one)));
  return py::make_tuple(result, which, widths);
}

// The edges of a list that have all their vertices: the list itself where all have.
py::list complete_edges(const py::list& edges) {
  const auto is_complete = [](const py::handle& edge) {
    if (!PyObject_TypeCheck(edge.ptr(), &edge_row_type)) throw py::type_error("complete_edges: not an edge");
    PyObject* vertices = reinterpret_cast<EdgeRow*>(edge.ptr())->vertices;
    for (Py_ssize_t i = 0; vertices != nullptr && i < PyList_GET_SIZE(vertices); ++i)
      if (PyList_GET_ITEM(vertices, i) == Py_None) return false;
    return vertices != nullptr;
  };
  if (std::all_of(edges.begin(), edges.end(), is_complete)) return edges;
  py::list result;
  for (const py::handle edge : edges)
    if (is_complete(edge)) result.append(edge);
  return result;
}

// Runs the error program of an edge type on edges, a chunk of lanes at a time.
class EdgeEvaluator {
 public:
  explicit EdgeEvaluator(std::shared_ptr<const Program> program)
      : program_(std::move(program)), frame_(static_cast<std::size_t>(program_->num_registers) * kLanes) {
    fill_constants(*program_, frame_.data());
  }

  // Write error and chi2 of each edge into its row; false if the only edge has not all its vertices.
  bool run(PyObject* const* edges, py::ssize_t count) {
    for (py::ssize_t first = 0; first < count; first += kLanes) {
      const int lanes = static_cast<int>(std::min<py::ssize_t>(kLanes, count - first));
      for (int lane = 0; lane < lanes; ++lane)
        if (!load(edges[first + lane], lane)) return false;
      // the lanes of a vector share their branches: the rest has the numbers of the last edge
      for (int lane = lanes; lane % kVectorLanes != 0; ++lane) load(edges[first + lanes - 1], lane);
      execute(*program_, frame_.data(), RobustContext{}, lanes);
      for (int lane = 0; lane < lanes; ++lane) store(edges[first + lane], lane);
    }
    return true;
  }

 private:
  bool load(PyObject* edge, int lane) {
    if (!PyObject_TypeCheck(edge, &edge_row_type)) throw py::type_error("EdgeEvaluator: not an edge");
    PyObject* vertices = reinterpret_cast<EdgeRow*>(edge)->vertices;
    const std::int32_t *input = program_->input_registers.data(), *end = input + program_->num_inputs();
    const auto put = [&](PyObject* object, int column) {
      const double* x = numbers<double>(object, column);
      const Py_ssize_t size = x == nullptr ? 0 : as_row(object)->chunk->row_size[column];
      for (Py_ssize_t k = 0; k < size && input != end; ++k, ++input)
        if (*input >= 0) frame_[static_cast<std::size_t>(*input) * kLanes + lane] = x[k];
    };
    for (Py_ssize_t i = 0; vertices != nullptr && i < PyList_GET_SIZE(vertices); ++i) {
      PyObject* vertex = PyList_GET_ITEM(vertices, i);
      if (!PyObject_TypeCheck(vertex, &vertex_row_type)) return false;
      put(vertex, kEstimate);
    }
    put(edge, kMeasurement);
    if (input != end)
      throw py::value_error("EdgeEvaluator: the program takes more numbers than this edge has");
    return true;
  }

  void store(PyObject* edge, int lane) const {
    const int dim = program_->num_outputs();
    double *error = numbers<double>(edge, kError), *chi2 = numbers<double>(edge, kChi2);
    const double* information = numbers<double>(edge, kInformation);
    if (error == nullptr || information == nullptr || chi2 == nullptr ||
        as_row(edge)->chunk->row_size[kError] != dim)
      throw py::value_error("EdgeEvaluator: the program's error is not as long as this edge's");
    for (int k = 0; k < dim; ++k)
      error[k] =
          frame_[static_cast<std::size_t>(program_->output_registers[static_cast<std::size_t>(k)]) * kLanes +
                 lane];
    double total = 0.0;
    for (int i = 0; i < dim; ++i) {
      double weighted = 0.0;
      for (int k = 0; k < dim; ++k) weighted += information[i * dim + k] * error[k];
      total += error[i] * weighted;
    }
    *chi2 = total;
  }

  std::shared_ptr<const Program> program_;
  AlignedVector<double> frame_;  // guarded by the interpreter lock
};

// -------------------------------------------------------------------- types

void add_type(py::module_& m, PyTypeObject& type, const char* name, Py_ssize_t size, unsigned long flags,
              const char* doc) {
  type.tp_name = name;
  type.tp_basicsize = size;
  type.tp_flags = Py_TPFLAGS_DEFAULT | flags;
  type.tp_doc = doc;
  if (type.tp_new == nullptr && (flags & Py_TPFLAGS_BASETYPE)) type.tp_new = PyType_GenericNew;
  if (PyType_Ready(&type) < 0) throw py::error_already_set();
  const char* last = std::strrchr(name, '.');
  m.attr(last == nullptr ? name : last + 1) =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&type));
}

template <class T>
void prepare_row_type(PyTypeObject& type, PyMemberDef* members, initproc init) {
  type.tp_base = &row_type;
  type.tp_members = members;
  type.tp_init = init;
  type.tp_dealloc = dealloc<T>;
  type.tp_traverse = traverse<T>;
  type.tp_clear = clear<T>;
}

void row_dealloc(PyObject* self) {
  PyObject* chunk = reinterpret_cast<PyObject*>(as_row(self)->chunk);
  as_row(self)->chunk = nullptr;
  Py_XDECREF(chunk);
  Py_TYPE(self)->tp_free(self);
}

void prepare_fast_type(PyTypeObject& type) {
  type.tp_dealloc = fast_dealloc;
  type.tp_traverse = fast_traverse;
  type.tp_clear = fast_clear;
  type.tp_getattro = fast_attribute;
}

}  // namespace

void bind_rows(py::module_& m) {
  const py::module_ numpy = py::module_::import("numpy");
  array_type = reinterpret_cast<PyTypeObject*>(py::object(numpy.attr("ndarray")).release().ptr());
  double_dtype = py::object(py::dtype::of<double>()).release().ptr();
  pool_name = PyUnicode_InternFromString("_pool");
  chunk_name = PyUnicode_InternFromString("chunk");
  grow_name = PyUnicode_InternFromString("grow");
  arity_name = PyUnicode_InternFromString("_arity");
  delta_name = PyUnicode_InternFromString("_delta");
  unset_id = PyLong_FromLong(-2);

  for (int k = 0; k < kColumns; ++k)
    chunk_columns[k] = {kNames[k], chunk_get, chunk_set, "A column.",
                        reinterpret_cast<void*>(std::intptr_t{k})};
  chunk_type.tp_getset = chunk_columns;
  chunk_type.tp_members = chunk_members;
  chunk_type.tp_methods = chunk_methods;
  chunk_type.tp_init = chunk_init;
  chunk_type.tp_dealloc = chunk_dealloc;
  add_type(m, chunk_type, "graphopt.Chunk", sizeof(Chunk), Py_TPFLAGS_BASETYPE,
           "Chunk(num_rows, number): arrays with a common number of rows.");

  row_type.tp_getset = row_getset;
  row_type.tp_members = row_members;
  row_type.tp_dealloc = row_dealloc;
  add_type(m, row_type, "graphopt.Row", sizeof(Row), Py_TPFLAGS_BASETYPE, "An object with a row of a chunk.");
  prepare_row_type<VertexRow>(vertex_row_type, vertex_members, vertex_init);
  add_type(m, vertex_row_type, "graphopt.VertexRow", sizeof(VertexRow),
           Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, "A vertex; takes a row of its class's `_pool`.");
  prepare_row_type<EdgeRow>(edge_row_type, edge_members, edge_init);
  edge_row_type.tp_methods = edge_methods;
  add_type(m, edge_row_type, "graphopt.EdgeRow", sizeof(EdgeRow), Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
           "An edge of `_arity` vertices; takes a row of its class's `_pool`.");

  prepare_fast_type(method_type);
  method_type.tp_vectorcall_offset = offsetof(Fast, vectorcall);
  method_type.tp_call = PyVectorcall_Call;
  method_type.tp_descr_get = method_bind;
  add_type(m, method_type, "graphopt.FastMethod", sizeof(Fast),
           Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
           "A Python method with a short way for the usual case.");
  prepare_fast_type(property_type);
  property_type.tp_descr_get = property_get;
  property_type.tp_descr_set = property_set;
  add_type(m, property_type, "graphopt.FastProperty", sizeof(Fast), Py_TPFLAGS_HAVE_GC,
           "A Python property with a short way for the usual case.");

  m.def(
      "fast_getter",
      [](const py::object& python, const std::string& column) {
        return make_fast(method_type, python, kGet, column, 0, 1, false, false);
      },
      py::arg("method"), py::arg("column"),
      "A method that returns the one number of a column; NaN: ask Python.");
  m.def(
      "fast_setter",
      [](const py::object& python, const std::string& column, Py_ssize_t first, Py_ssize_t count,
         bool forgets_chi2) {
        return make_fast(method_type, python, kSet, column, first, count, forgets_chi2, false);
      },
      py::arg("method"), py::arg("column"), py::arg("first") = 0, py::arg("count") = -1,
      py::arg("forgets_chi2") = false,
      "A method that sets numbers of a column, `count` from `first` on (-1: all).");
  m.def(
      "fast_property",
      [](const py::object& python, const std::string& column, Py_ssize_t first, Py_ssize_t count,
         bool single) { return make_fast(property_type, python, kGet, column, first, count, false, single); },
      py::arg("property"), py::arg("column"), py::arg("first"), py::arg("count") = 1,
      py::arg("single") = false, "A property of numbers of a column; `single`: rounded to single precision.");
  m.def("places_of", &places_of, py::arg("objects"),
        "Per chunk of a list of objects (chunk, places, rows); consecutive numbers as a slice.");
  m.def("vertex_ids", &vertex_ids, py::arg("edges"), py::arg("arity"), "(n, arity) ids of a list of edges.");
  m.def("robust_kernels", &robust_kernels, py::arg("edges"),
        "(classes, (n,) which or -1, (n,) deltas) of the robust kernels of a list of edges.");
  m.def("complete_edges", &complete_edges, py::arg("edges"), "The edges of a list that have all vertices.");
  py::class_<EdgeEvaluator>(m, "EdgeEvaluator", "Errors and chi2 of edges of one type, into their rows.")
      .def(py::init([](std::shared_ptr<Program> program) {
             return std::make_unique<EdgeEvaluator>(std::move(program));
           }),
           py::arg("program"))
      .def(
          "one",
          [](EdgeEvaluator& self, const py::object& edge) {
            PyObject* pointer = edge.ptr();
            return self.run(&pointer, 1);
          },
          py::arg("edge"), "Of one edge; False if a vertex is missing.")
      .def(
          "many",
          [](EdgeEvaluator& self, const py::list& edges) {
            if (!self.run(PySequence_Fast_ITEMS(edges.ptr()), static_cast<py::ssize_t>(edges.size())))
              throw py::value_error("EdgeEvaluator.many: a vertex is missing");
          },
          py::arg("edges"), "Of a list of edges.");
}
