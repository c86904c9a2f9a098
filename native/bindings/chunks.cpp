// Chunks: columns of numbers of which objects have rows.
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <cstdint>

#include "rows.h"

namespace graphopt::rows {

// GCC warns about the missing initialisers of these tables, which C++17 sets to zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
PyTypeObject chunk_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

namespace {

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
  Py_CLEAR(as_chunk(self)->evaluator);
  for (PyObject*& array : as_chunk(self)->arrays) Py_CLEAR(array);
  Py_TYPE(self)->tp_free(self);
}

PyObject* chunk_take(PyObject* self, PyObject*) {
  Chunk* chunk = as_chunk(self);
  return PyLong_FromSsize_t(chunk->next_row < chunk->num_rows ? chunk->next_row++ : -1);
}

PyGetSetDef chunk_columns[kColumns + 1];
PyMemberDef chunk_members[] = {
    {"evaluator", T_OBJECT, offsetof(Chunk, evaluator), 0, "EdgeEvaluator of these edges, or None."},
    {"number", T_PYSSIZET, offsetof(Chunk, number), READONLY, "Number of the chunk."},
    {"num_rows", T_PYSSIZET, offsetof(Chunk, num_rows), READONLY, "Rows."},
    {}};
PyMethodDef chunk_methods[] = {
    {"take", chunk_take, METH_NOARGS, "The next row that no object has, -1 if all are taken."}, {}};

}  // namespace

void bind_chunks(py::module_& m) {
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
}

}  // namespace graphopt::rows
