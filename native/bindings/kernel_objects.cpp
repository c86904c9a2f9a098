// Robust kernels of the g2o interface: objects with a width, which edges share.
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "rows.h"

namespace graphopt::rows {

// GCC warns about the missing initialisers of these tables, which C++17 sets to zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
PyTypeObject kernel_width_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

namespace {

PyMemberDef width_members[] = {{"_delta", T_DOUBLE, offsetof(KernelWidth, delta), 0, "Width."}, {}};

int width_init(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"delta", nullptr};
  double delta = 1.0;
  const bool is_plain = keywords == nullptr || PyDict_GET_SIZE(keywords) == 0;
  if (is_plain && PyTuple_GET_SIZE(args) == 1 && PyFloat_CheckExact(PyTuple_GET_ITEM(args, 0)))
    delta = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(args, 0));
  else if (!PyArg_ParseTupleAndKeywords(args, keywords, "|d", const_cast<char**>(names), &delta))
    return -1;
  reinterpret_cast<KernelWidth*>(self)->delta = delta;
  return 0;
}

PyObject* width_repr(PyObject* self) {
  const char* name = std::strrchr(Py_TYPE(self)->tp_name, '.');
  PyObject* delta = PyFloat_FromDouble(reinterpret_cast<KernelWidth*>(self)->delta);
  if (delta == nullptr) return nullptr;
  PyObject* text = PyUnicode_FromFormat("%s(%R)", name == nullptr ? Py_TYPE(self)->tp_name : name + 1, delta);
  Py_DECREF(delta);
  return text;
}

// A class like a Python class that derives from KernelWidth and adds functions and constants only. Python's
// garbage collector tracks and counts every object of a class that is defined in Python; those of this one,
// which refer to nothing, it does not see, so that graphs with a kernel per edge do not set it to work.
py::object leaf_class(const py::object& python) {
  PyTypeObject* model = reinterpret_cast<PyTypeObject*>(python.ptr());
  if (!PyType_Check(python.ptr()) || !PyType_IsSubtype(model, &kernel_width_type) ||
      model->tp_basicsize != kernel_width_type.tp_basicsize)
    throw py::type_error("leaf_class takes a class derived from KernelWidth, with __slots__ = ()");
  if (PyType_IS_GC(model->tp_base)) throw py::type_error("leaf_class: the base must be one of these as well");
  const auto members = py::reinterpret_steal<py::dict>(PyDict_New());
  for (const auto& [name, value] : py::dict(python.attr("__dict__"))) {
    const std::string text = py::cast<std::string>(name);
    if (text.rfind("__", 0) != 0 || text == "__init__") members[name] = value;
  }
  const auto lasting = [](const std::string& text) { return strdup(text.c_str()); };  // types are never freed
  PyTypeObject* type = new PyTypeObject{PyVarObject_HEAD_INIT(nullptr, 0)};
  type->tp_name = lasting(python.attr("__module__").cast<std::string>() + "." +
                          python.attr("__qualname__").cast<std::string>());
  type->tp_doc = lasting(python.attr("__doc__").cast<std::string>());
  type->tp_basicsize = model->tp_basicsize;
  type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  type->tp_base = model->tp_base;
  type->tp_dict = members.inc_ref().ptr();
  if (PyType_Ready(type) < 0) throw py::error_already_set();
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type));
}

// Writes per edge the number of its robust kernel's class (0: none) and its width (1 without kernel), and
// returns the classes that occur.
py::list robust_kernels(const py::list& edges, py::array_t<std::int32_t, py::array::c_style> numbers,
                        py::array_t<double, py::array::c_style> widths) {
  const py::ssize_t count = static_cast<py::ssize_t>(edges.size());
  if (numbers.size() != count || widths.size() != count)
    throw py::value_error("robust_kernels: one number and one width per edge");
  std::int32_t* number = numbers.mutable_data();
  double* width = widths.mutable_data();
  py::list classes;
  PyTypeObject *edge_type = nullptr, *kernel_type = nullptr;  // of the edge before
  std::int32_t kernel_number = 0;
  for (py::ssize_t i = 0; i < count; ++i) {
    PyObject* edge = PyList_GET_ITEM(edges.ptr(), i);
    if (Py_TYPE(edge) != edge_type && !is_edge(edge)) throw py::type_error("robust_kernels: not an edge");
    edge_type = Py_TYPE(edge);
    PyObject* kernel = as_edge(edge)->kernel;
    number[i] = 0;
    width[i] = 1.0;
    if (kernel == nullptr || kernel == Py_None) continue;
    if (Py_TYPE(kernel) != kernel_type) {
      if (!PyObject_TypeCheck(kernel, &kernel_width_type))
        throw py::type_error("set_robust_kernel takes a RobustKernel* or None, got a " +
                             std::string(Py_TYPE(kernel)->tp_name));
      kernel_type = Py_TYPE(kernel);
      const auto of_class = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(kernel_type));
      kernel_number = of_class.attr("_number").cast<std::int32_t>();
      if (!classes.contains(of_class)) classes.append(of_class);
    }
    number[i] = kernel_number;
    width[i] = reinterpret_cast<KernelWidth*>(kernel)->delta;
  }
  return classes;
}

}  // namespace

void bind_kernel_objects(py::module_& m) {
  kernel_width_type.tp_members = width_members;
  kernel_width_type.tp_init = width_init;
  kernel_width_type.tp_repr = width_repr;
  add_type(m, kernel_width_type, "graphopt.KernelWidth", sizeof(KernelWidth), Py_TPFLAGS_BASETYPE,
           "KernelWidth(delta=1.0)\n--\n\nThe width of a robust kernel.");
  m.def("leaf_class", &leaf_class, py::arg("cls"),
        "A class like this one, derived from KernelWidth, whose objects the garbage collector does not see.");
  m.def("robust_kernels", &robust_kernels, py::arg("edges"), py::arg("numbers").noconvert(),
        py::arg("widths").noconvert(),
        "Fill in the (n,) numbers of the robust kernels of a list of edges, 0 for none, and their (n,) "
        "widths; the "
        "classes that occur.");
}

}  // namespace graphopt::rows
