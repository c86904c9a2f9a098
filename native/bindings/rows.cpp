// The types in rows.h.
#include "rows.h"

#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace graphopt::rows {

// GCC warns about the missing initialisers of these tables, which C++17 sets to zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
PyTypeObject row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject vertex_row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject edge_row_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject graph_base_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

namespace {

PyObject *pool_name = nullptr, *chunk_name = nullptr, *grow_name = nullptr, *arity_name = nullptr,
         *unset_id = nullptr;

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
  static constexpr PyObject* EdgeRow::*all[] = {&EdgeRow::id,     &EdgeRow::graph,      &EdgeRow::data,
                                                &EdgeRow::kernel, &EdgeRow::parameters, &EdgeRow::jacobians};
};

template <>
struct Objects<GraphBase> {
  static constexpr PyObject* GraphBase::*all[] = {&GraphBase::edges, &GraphBase::incidence};
};

template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  for (auto member : Objects<T>::all) Py_VISIT(reinterpret_cast<T*>(self)->*member);
  if constexpr (std::is_same_v<T, EdgeRow>)
    for (Py_ssize_t i = 0; i < as_edge(self)->num_vertices; ++i) Py_VISIT(as_edge(self)->vertices[i]);
  return 0;
}

// Give an edge this many vertices, none of them set.
bool reset_vertices(EdgeRow* edge, Py_ssize_t count) {
  PyObject **old = edge->vertices, *own[] = {edge->own[0], edge->own[1]};
  const Py_ssize_t num_old = edge->num_vertices;
  PyObject** fresh = edge->own;
  if (count > static_cast<Py_ssize_t>(std::size(own))) {
    fresh = static_cast<PyObject**>(PyMem_Calloc(static_cast<std::size_t>(count), sizeof(PyObject*)));
    if (fresh == nullptr) {
      PyErr_NoMemory();
      return false;
    }
  }
  edge->own[0] = edge->own[1] = nullptr;
  edge->vertices = fresh;
  edge->num_vertices = count;
  const bool is_own = old == edge->own;
  for (Py_ssize_t i = 0; i < num_old; ++i) Py_XDECREF(is_own ? own[i] : old[i]);
  if (!is_own) PyMem_Free(old);
  return true;
}

template <class T>
int clear(PyObject* self) {
  for (auto member : Objects<T>::all) Py_CLEAR(reinterpret_cast<T*>(self)->*member);
  if constexpr (std::is_same_v<T, EdgeRow>) reset_vertices(as_edge(self), 0);
  return 0;
}

void graph_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear<GraphBase>(self);
  Py_TYPE(self)->tp_free(self);
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
  if (!reset_vertices(edge, arity)) return -1;
  Py_CLEAR(edge->graph);
  Py_CLEAR(edge->data);
  Py_CLEAR(edge->kernel);
  Py_CLEAR(edge->parameters);
  Py_CLEAR(edge->jacobians);
  edge->internal_id = -1;
  return take_row(self) ? 0 : -1;
}

PyObject* get_vertices(PyObject* self, void*) {
  const EdgeRow* edge = as_edge(self);
  PyObject* all = PyTuple_New(edge->num_vertices);
  for (Py_ssize_t i = 0; all != nullptr && i < edge->num_vertices; ++i)
    PyTuple_SET_ITEM(all, i, Py_NewRef(edge->vertices[i] == nullptr ? Py_None : edge->vertices[i]));
  return all;
}

int set_vertices(PyObject* self, PyObject* value, void*) {
  PyObject* all = value == nullptr ? nullptr : PySequence_Fast(value, "_vertices must be a sequence");
  if (all == nullptr) return -1;
  EdgeRow* edge = as_edge(self);
  const bool done = reset_vertices(edge, PySequence_Fast_GET_SIZE(all));
  for (Py_ssize_t i = 0; done && i < edge->num_vertices; ++i) {
    PyObject* vertex = PySequence_Fast_GET_ITEM(all, i);
    edge->vertices[i] = vertex == Py_None ? nullptr : Py_NewRef(vertex);
  }
  Py_DECREF(all);
  return done ? 0 : -1;
}

PyObject* fits(PyObject* self, PyObject* graph) { return PyBool_FromLong(edge_fits(as_edge(self), graph)); }

#define OBJECT(type, name, text) \
  { "_" #name, T_OBJECT, offsetof(type, name), 0, text }
template <class T>
PyObject* get_graph(PyObject* self, void*) {
  PyObject* graph = graph_of(reinterpret_cast<T*>(self)->graph);
  return Py_NewRef(graph == nullptr ? Py_None : graph);
}

template <class T>
int set_graph(PyObject* self, PyObject* value, void*) {
  PyObject* reference = nullptr;
  if (value != nullptr && value != Py_None) {
    reference = PyWeakref_NewRef(value, nullptr);
    if (reference == nullptr) return -1;
  }
  Py_XSETREF(reinterpret_cast<T*>(self)->graph, reference);
  return 0;
}

PyGetSetDef vertex_getset[] = {
    {"_graph", get_graph<VertexRow>, set_graph<VertexRow>, "The graph, or None.", nullptr}, {}};
PyGetSetDef edge_getset[] = {
    {"_graph", get_graph<EdgeRow>, set_graph<EdgeRow>, "The graph, or None.", nullptr},
    {"_vertices", get_vertices, set_vertices, "A new tuple of the vertices, None where one is not set.",
     nullptr},
    {}};

PyMemberDef vertex_members[] = {
    OBJECT(VertexRow, id, "Id."),
    OBJECT(VertexRow, data, "User data, or None."),
    OBJECT(VertexRow, stack, "Pushed estimates, or None."),
    {"_hessian_index", T_PYSSIZET, offsetof(VertexRow, hessian_index), 0, "Number in the Hessian, or -1."},
    {"_col", T_PYSSIZET, offsetof(VertexRow, col), 0, "What set_col_in_hessian set."},
    {}};
PyMemberDef edge_members[] = {
    OBJECT(EdgeRow, id, "Id."),
    OBJECT(EdgeRow, data, "User data, or None."),
    OBJECT(EdgeRow, kernel, "Robust kernel, or None."),
    OBJECT(EdgeRow, parameters, "Ids of the parameters, or None."),
    OBJECT(EdgeRow, jacobians, "Last Jacobians, or None."),
    {"_internal_id", T_PYSSIZET, offsetof(EdgeRow, internal_id), 0, "Place in the graph, or -1."},
    {}};
PyMemberDef graph_members[] = {
    OBJECT(GraphBase, edges, "Edges, as the keys of a dictionary."),
    OBJECT(GraphBase, incidence, "Edges by vertex, or None until somebody asks."),
    {"_version", T_PYSSIZET, offsetof(GraphBase, version), 0, "Changes with the graph's content."},
    {"_next_edge", T_PYSSIZET, offsetof(GraphBase, next_edge), 0, "Edges added so far."},
    {}};
PyMethodDef edge_methods[] = {
    {"_fits", fits, METH_O, "The edge is in no graph and its vertices are different ones of this graph."},
    {}};

// -------------------------------------------------------------------- types

template <class T>
void prepare_row_type(PyTypeObject& type, PyMemberDef* members, PyGetSetDef* getset, initproc init) {
  type.tp_base = &row_type;
  type.tp_members = members;
  type.tp_getset = getset;
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

}  // namespace

PyObject* graph_of(PyObject* reference) {
  if (reference == nullptr) return nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* graph = nullptr;
  PyWeakref_GetRef(reference, &graph);
  Py_XDECREF(graph);
  return graph;
#else
  PyObject* graph = PyWeakref_GetObject(reference);
  return graph == Py_None ? nullptr : graph;
#endif
}

bool edge_fits(const EdgeRow* edge, PyObject* graph) {
  if (edge->vertices == nullptr || graph_of(edge->graph) != nullptr) return false;
  for (Py_ssize_t i = 0; i < edge->num_vertices; ++i) {
    PyObject* vertex = edge->vertices[i];
    if (vertex == nullptr || !is_vertex(vertex) || graph_of(as_vertex(vertex)->graph) != graph) return false;
    for (Py_ssize_t j = 0; j < i; ++j)
      if (edge->vertices[j] == vertex) return false;
  }
  return true;
}

void add_type(py::module_& m, PyTypeObject& type, const char* name, std::size_t size, unsigned long flags,
              const char* doc) {
  type.tp_name = name;
  type.tp_basicsize = static_cast<Py_ssize_t>(size);
  type.tp_flags = Py_TPFLAGS_DEFAULT | flags;
  type.tp_doc = doc;
  if (type.tp_new == nullptr && (flags & Py_TPFLAGS_BASETYPE)) type.tp_new = PyType_GenericNew;
  if (PyType_Ready(&type) < 0) throw py::error_already_set();
  const char* last = std::strrchr(name, '.');
  m.attr(last == nullptr ? name : last + 1) =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&type));
}

}  // namespace graphopt::rows

void bind_rows(pybind11::module_& m) {
  using namespace graphopt::rows;
  pool_name = PyUnicode_InternFromString("_pool");
  chunk_name = PyUnicode_InternFromString("chunk");
  grow_name = PyUnicode_InternFromString("grow");
  arity_name = PyUnicode_InternFromString("_arity");
  unset_id = PyLong_FromLong(-2);
  bind_chunks(m);

  row_type.tp_getset = row_getset;
  row_type.tp_members = row_members;
  row_type.tp_dealloc = row_dealloc;
  add_type(m, row_type, "graphopt.Row", sizeof(Row), Py_TPFLAGS_BASETYPE, "An object with a row of a chunk.");
  prepare_row_type<VertexRow>(vertex_row_type, vertex_members, vertex_getset, vertex_init);
  add_type(m, vertex_row_type, "graphopt.VertexRow", sizeof(VertexRow),
           Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, "A vertex; takes a row of its class's `_pool`.");
  prepare_row_type<EdgeRow>(edge_row_type, edge_members, edge_getset, edge_init);
  edge_row_type.tp_methods = edge_methods;
  add_type(m, edge_row_type, "graphopt.EdgeRow", sizeof(EdgeRow), Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
           "An edge of `_arity` vertices; takes a row of its class's `_pool`.");

  graph_base_type.tp_members = graph_members;
  graph_base_type.tp_dealloc = graph_dealloc;
  graph_base_type.tp_traverse = traverse<GraphBase>;
  graph_base_type.tp_clear = clear<GraphBase>;
  add_type(m, graph_base_type, "graphopt.GraphBase", sizeof(GraphBase),
           Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, "What adding an edge changes in a graph.");

  bind_kernel_objects(m);
  bind_fast_methods(m);
  bind_row_lists(m);
  bind_edge_evaluator(m);
}
