// What the objects of the g2o interface are made of: rows of arrays.
//
//     Chunk        columns (numpy arrays of one length) by name; hands out its rows
//     Row          an object that has a row of a chunk
//     VertexRow, EdgeRow    with the attributes of vertices and edges
//     GraphBase    with the attributes of a graph that adding an edge changes
//     KernelWidth  with the width of a robust kernel
//
// The classes in graphopt/g2o derive from these.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>

namespace graphopt::rows {

namespace py = pybind11;

enum Column { kEstimate, kFixed, kMarginalized, kMeasurement, kInformation, kError, kChi2, kLevel, kColumns };
inline constexpr const char* kNames[kColumns] = {"estimate",    "fixed", "marginalized", "measurement",
                                                 "information", "error", "chi2",         "level"};
inline constexpr char kKinds[kColumns] = {'d', '?', '?', 'd', 'd', 'd', 'd', 'i'};

struct Chunk {
  PyObject_HEAD PyObject* arrays[kColumns];
  PyObject* evaluator;  // EdgeEvaluator of the type, null until Python has evaluated one of its edges
  char* data[kColumns];
  Py_ssize_t row_size[kColumns];  // numbers of a row
  Py_ssize_t num_rows, next_row, number;
};

struct Row {
  PyObject_HEAD Chunk* chunk;
  Py_ssize_t row;
};

// A graph owns its vertices and edges; `graph` is a weak reference to it, or null.
struct VertexRow {
  Row base;
  PyObject *id, *graph, *data, *stack;
  Py_ssize_t hessian_index, col;
  Py_ssize_t list_number, list_place;  // see number_vertices
};

// The vertices are in the object itself, without a list, which Python's garbage collector would count.
struct EdgeRow {
  Row base;
  PyObject *id, *graph, *data, *kernel, *parameters, *jacobians;
  PyObject** vertices;  // null where one is not set; in `own` where they fit
  PyObject* own[2];
  Py_ssize_t num_vertices, internal_id;
};

struct GraphBase {
  PyObject_HEAD PyObject *edges, *incidence;
  Py_ssize_t version, next_edge;
};

struct KernelWidth {
  PyObject_HEAD double delta;
};

extern PyTypeObject chunk_type, row_type, vertex_row_type, edge_row_type, graph_base_type, kernel_width_type;

inline Row* as_row(PyObject* object) { return reinterpret_cast<Row*>(object); }
inline Chunk* as_chunk(PyObject* object) { return reinterpret_cast<Chunk*>(object); }
inline EdgeRow* as_edge(PyObject* object) { return reinterpret_cast<EdgeRow*>(object); }
inline VertexRow* as_vertex(PyObject* object) { return reinterpret_cast<VertexRow*>(object); }
inline bool is_edge(PyObject* object) { return PyObject_TypeCheck(object, &edge_row_type); }
inline bool is_vertex(PyObject* object) { return PyObject_TypeCheck(object, &vertex_row_type); }

// A class that passed a check; the tag tells it from a later class at the same place in memory.
class KnownClass {
 public:
  // Whether the object's class derives from `base`.
  bool derives(PyObject* object, PyTypeObject* base) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == type_ && type->tp_version_tag == tag_ && tag_ != 0) return true;
    if (!PyType_IsSubtype(type, base)) return false;
    type_ = type;
    tag_ = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
    return true;
  }

 private:
  PyTypeObject* type_ = nullptr;
  unsigned int tag_ = 0;
};

// The numbers of an object's row, null if it has none of this column.
template <class T>
T* numbers(PyObject* object, int column) {
  const Row* row = as_row(object);
  const Chunk* chunk = row->chunk;
  if (chunk == nullptr || chunk->data[column] == nullptr || row->row < 0 || row->row >= chunk->num_rows)
    return nullptr;
  return reinterpret_cast<T*>(chunk->data[column]) + row->row * chunk->row_size[column];
}

// The graph of a `graph` field, borrowed; null if there is none or it is gone.
PyObject* graph_of(PyObject* reference);

// Whether the edge can join a graph: it is in none, and all its vertices are different ones of that graph.
bool edge_fits(const EdgeRow* edge, PyObject* graph);

// Runs an EdgeEvaluator object on one edge; false if a vertex is missing.
bool evaluate_edge(PyObject* evaluator, PyObject* edge);

// Finish a type and give it to the module by the last part of its name.
void add_type(py::module_& m, PyTypeObject& type, const char* name, std::size_t size, unsigned long flags,
              const char* doc);

void bind_chunks(py::module_& m);          // chunks.cpp
void bind_kernel_objects(py::module_& m);  // kernel_objects.cpp
void bind_fast_methods(py::module_& m);    // fast_methods.cpp
void bind_row_lists(py::module_& m);       // row_lists.cpp
void bind_edge_evaluator(py::module_& m);  // edge_evaluator.cpp

}  // namespace graphopt::rows
