// Python methods and properties with a short way for the usual case.
//
// A fast method does the usual case itself (the types are those expected, nothing is missing) and leaves
// everything else, and all errors, to the Python function it wraps.
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "rows.h"

namespace graphopt::rows {
namespace {

// GCC warns about the missing initialisers of these tables, which C++17 sets to zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
PyTypeObject method_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject property_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject* array_type = nullptr;
PyObject *double_dtype = nullptr, *plain_name = nullptr;

enum Action { kGet, kSet, kSetVertex, kSetKernel, kEvaluate, kAddEdge };
constexpr Py_ssize_t kArguments[] = {1, 2, 3, 2, 1, 2};

struct Fast {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* python;  // the function or property
  int action, column;
  Py_ssize_t first, count;  // numbers of the row; count -1: all
  bool forgets_chi2, single;
  KnownClass known;  // of the object whose method or property it is
};

Fast* as_fast(PyObject* object) { return reinterpret_cast<Fast*>(object); }

bool owns_column(PyObject* object, Fast& fast) {
  return fast.known.derives(object, &row_type) && numbers<char>(object, fast.column) != nullptr;
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
  if (PyFloat_Check(value) && count == 1 && fast.count == 1) {
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

// The short ways return null without an error if the Python function has to do it.

PyObject* get(Fast& fast, PyObject* const* args) {
  return owns_column(args[0], fast) ? read(args[0], fast) : nullptr;
}

PyObject* set(Fast& fast, PyObject* const* args) {
  return owns_column(args[0], fast) && write(args[0], fast, args[1]) ? Py_NewRef(Py_None) : nullptr;
}

// edge.set_vertex(i, vertex) of an edge that is in no graph.
PyObject* set_vertex(Fast& fast, PyObject* const* args) {
  if (!fast.known.derives(args[0], &edge_row_type) || !PyLong_CheckExact(args[1]) || !is_vertex(args[2]))
    return nullptr;
  const EdgeRow* edge = as_edge(args[0]);
  if (graph_of(edge->graph) != nullptr) return nullptr;
  int overflow = 0;
  const long i = PyLong_AsLongAndOverflow(args[1], &overflow);
  if (overflow != 0 || i < 0 || i >= edge->num_vertices) return nullptr;
  Py_XSETREF(edge->vertices[i], Py_NewRef(args[2]));
  return Py_NewRef(Py_None);
}

PyObject* set_kernel(Fast& fast, PyObject* const* args) {
  if (!fast.known.derives(args[0], &edge_row_type)) return nullptr;
  if (args[1] != Py_None && !PyObject_TypeCheck(args[1], &kernel_width_type)) return nullptr;
  Py_XSETREF(as_edge(args[0])->kernel, Py_NewRef(args[1]));
  return Py_NewRef(Py_None);
}

PyObject* evaluate(Fast& fast, PyObject* const* args) {
  if (!fast.known.derives(args[0], &edge_row_type)) return nullptr;
  const Chunk* chunk = as_row(args[0])->chunk;
  if (chunk == nullptr || chunk->evaluator == nullptr || chunk->evaluator == Py_None) return nullptr;
  return evaluate_edge(chunk->evaluator, args[0]) ? Py_NewRef(Py_None) : nullptr;
}

// graph.add_edge(edge) of an edge of a fixed type without parameters whose vertices are in the graph.
PyObject* add_edge(PyObject* const* args) {
  if (!PyObject_TypeCheck(args[0], &graph_base_type) || !is_edge(args[1])) return nullptr;
  GraphBase* graph = reinterpret_cast<GraphBase*>(args[0]);
  EdgeRow* edge = as_edge(args[1]);
  if (graph->edges == nullptr || !PyDict_CheckExact(graph->edges) ||
      (graph->incidence != nullptr && graph->incidence != Py_None) || !edge_fits(edge, args[0]))
    return nullptr;
  PyObject* is_plain = PyObject_GetAttr(args[1], plain_name);
  Py_XDECREF(is_plain);
  if (is_plain != Py_True) return nullptr;
  PyObject* reference = PyWeakref_NewRef(args[0], nullptr);
  if (reference == nullptr || PyDict_SetItem(graph->edges, args[1], Py_None) < 0) {
    Py_XDECREF(reference);
    return nullptr;
  }
  Py_XSETREF(edge->graph, reference);
  edge->internal_id = graph->next_edge++;
  ++graph->version;
  return Py_NewRef(Py_True);
}

PyObject* short_way(Fast& fast, PyObject* const* args) {
  switch (fast.action) {
    case kGet:
      return get(fast, args);
    case kSet:
      return set(fast, args);
    case kSetVertex:
      return set_vertex(fast, args);
    case kSetKernel:
      return set_kernel(fast, args);
    case kEvaluate:
      return evaluate(fast, args);
    default:
      return add_edge(args);
  }
}

PyObject* method_call(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  Fast& fast = *as_fast(self);
  if (names == nullptr && PyVectorcall_NARGS(flags) == kArguments[fast.action]) {
    if (PyObject* value = short_way(fast, args)) return value;
    if (PyErr_Occurred()) return nullptr;
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
  Fast& fast = *as_fast(self);
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  if (fast.count == 1 && owns_column(object, fast))
    if (PyObject* value = read(object, fast)) return value;
  if (PyErr_Occurred()) return nullptr;
  return Py_TYPE(fast.python)->tp_descr_get(fast.python, object, type);
}

int property_set(PyObject* self, PyObject* object, PyObject* value) {
  Fast& fast = *as_fast(self);
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

py::object make_fast(PyTypeObject& type, const py::object& python, Action action,
                     const std::string& column = "", Py_ssize_t first = 0, Py_ssize_t count = 1,
                     bool forgets_chi2 = false, bool single = false) {
  int number = 0;
  while (!column.empty() && number < kColumns && column != kNames[number]) ++number;
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
  fast->known = KnownClass();
  PyObject_GC_Track(reinterpret_cast<PyObject*>(fast));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(fast));
}

py::object fast_method(const py::object& python, const std::string& what) {
  static const std::pair<const char*, Action> known[] = {{"set_vertex", kSetVertex},
                                                         {"set_robust_kernel", kSetKernel},
                                                         {"compute_error", kEvaluate},
                                                         {"add_edge", kAddEdge}};
  for (const auto& [name, action] : known)
    if (what == name) return make_fast(method_type, python, action);
  throw py::value_error("fast_method: there is no short way for " + what);
}

void prepare_fast_type(PyTypeObject& type) {
  type.tp_dealloc = fast_dealloc;
  type.tp_traverse = fast_traverse;
  type.tp_clear = fast_clear;
  type.tp_getattro = fast_attribute;
}

}  // namespace

void bind_fast_methods(py::module_& m) {
  const py::module_ numpy = py::module_::import("numpy");
  array_type = reinterpret_cast<PyTypeObject*>(py::object(numpy.attr("ndarray")).release().ptr());
  double_dtype = py::object(py::dtype::of<double>()).release().ptr();
  plain_name = PyUnicode_InternFromString("_is_plain");

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
        return make_fast(method_type, python, kGet, column);
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
  m.def("fast_method", &fast_method, py::arg("method"), py::arg("name"),
        "A method with the short way of this name: set_vertex, set_robust_kernel, compute_error, add_edge.");
  m.def(
      "fast_property",
      [](const py::object& python, const std::string& column, Py_ssize_t first, Py_ssize_t count,
         bool single) { return make_fast(property_type, python, kGet, column, first, count, false, single); },
      py::arg("property"), py::arg("column"), py::arg("first"), py::arg("count") = 1,
      py::arg("single") = false, "A property of numbers of a column; `single`: rounded to single precision.");
}

}  // namespace graphopt::rows
