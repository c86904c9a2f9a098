// What concerns many objects of the g2o interface at once: moving their numbers, and evaluating edges.
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rows.h"
#include "vm/lanes.h"
#include "vm/program.h"

namespace graphopt::rows {
namespace {

using namespace graphopt::vm;

// Note in each vertex of a list which list that is, and its place there.
void number_vertices(const py::list& vertices, Py_ssize_t list_number) {
  Py_ssize_t place = 0;
  for (const py::handle vertex : vertices) {
    if (!is_vertex(vertex.ptr())) throw py::type_error("number_vertices: not a vertex");
    as_vertex(vertex.ptr())->list_number = list_number;
    as_vertex(vertex.ptr())->list_place = place++;
  }
}

// ((n, arity) numbers of the lists, (n, arity) places in them) of the vertices of edges, as
// number_vertices set them.
py::tuple vertex_places(const py::list& edges, py::ssize_t arity) {
  const py::ssize_t count = static_cast<py::ssize_t>(edges.size());
  py::array_t<std::int32_t> lists({count, arity}), places({count, arity});
  std::int32_t *list = lists.mutable_data(), *place = places.mutable_data();
  for (const py::handle edge : edges) {
    PyObject* vertices = is_edge(edge.ptr()) ? as_edge(edge.ptr())->vertices : nullptr;
    if (vertices == nullptr || !PyList_CheckExact(vertices) || PyList_GET_SIZE(vertices) != arity)
      throw py::type_error("vertex_places: not an edge of this number of vertices");
    for (py::ssize_t slot = 0; slot < arity; ++slot) {
      PyObject* vertex = PyList_GET_ITEM(vertices, slot);
      if (!is_vertex(vertex)) throw py::type_error("vertex_places: a vertex is missing");
      *list++ = static_cast<std::int32_t>(as_vertex(vertex)->list_number);
      *place++ = static_cast<std::int32_t>(as_vertex(vertex)->list_place);
    }
  }
  return py::make_tuple(lists, places);
}

// Writes per edge the number of its robust kernel's class (0: none) and its width (1 without kernel), and returns
// the classes that occur.
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

// The edges of a list that have all their vertices: the list itself where all have.
py::list complete_edges(const py::list& edges) {
  const auto is_complete = [](const py::handle& edge) {
    if (!is_edge(edge.ptr())) throw py::type_error("complete_edges: not an edge");
    PyObject* vertices = as_edge(edge.ptr())->vertices;
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
    edge_type_ = vertex_type_ = nullptr;
    for (py::ssize_t first = 0; first < count; first += kLanes) {
      const int lanes = static_cast<int>(std::min<py::ssize_t>(kLanes, count - first));
      for (int lane = 0; lane < lanes; ++lane)
        if (!load(edges[first + lane], lane)) return false;
      pad(lanes);
      execute(*program_, frame_.data(), RobustContext{}, lanes);
      for (int lane = 0; lane < lanes; ++lane) store(edges[first + lane], lane);
    }
    return true;
  }

  void many(const py::list& edges, const py::object& rows) {
    PyObject** all = PySequence_Fast_ITEMS(edges.ptr());
    std::vector<PyObject*> chosen;
    if (rows.is_none()) {
      chosen.assign(all, all + edges.size());
    } else {
      const auto places = rows.cast<py::array_t<std::int64_t, py::array::c_style>>();
      for (py::ssize_t k = 0; k < places.size(); ++k) {
        const std::int64_t place = places.data()[k];
        if (place < 0 || place >= static_cast<std::int64_t>(edges.size()))
          throw py::index_error("EdgeEvaluator.many: there is no such edge");
        chosen.push_back(all[place]);
      }
    }
    if (!run(chosen.data(), static_cast<py::ssize_t>(chosen.size())))
      throw py::value_error("EdgeEvaluator.many: a vertex is missing");
  }

 private:
  bool load(PyObject* edge, int lane) {
    if (Py_TYPE(edge) != edge_type_ && !is_edge(edge)) throw py::type_error("EdgeEvaluator: not an edge");
    edge_type_ = Py_TYPE(edge);
    PyObject* vertices = as_edge(edge)->vertices;
    const std::int32_t *input = program_->input_registers.data(), *end = input + program_->num_inputs();
    double* frame = frame_.data() + lane;
    const auto put = [&](PyObject* object, int column) {
      const double* x = numbers<double>(object, column);
      const Py_ssize_t size = x == nullptr ? 0 : as_row(object)->chunk->row_size[column];
      for (Py_ssize_t k = 0; k < size && input != end; ++k, ++input)
        if (*input >= 0) frame[static_cast<std::size_t>(*input) * kLanes] = x[k];
    };
    for (Py_ssize_t i = 0; vertices != nullptr && i < PyList_GET_SIZE(vertices); ++i) {
      PyObject* vertex = PyList_GET_ITEM(vertices, i);
      if (Py_TYPE(vertex) != vertex_type_ && !is_vertex(vertex)) return false;
      vertex_type_ = Py_TYPE(vertex);
      put(vertex, kEstimate);
    }
    put(edge, kMeasurement);
    if (input != end)
      throw py::value_error("EdgeEvaluator: the program takes more numbers than this edge has");
    return true;
  }

  // The lanes of a vector share their branches: the rest gets the numbers of the last edge.
  void pad(int lanes) {
    const int end = (lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
    if (lanes == end) return;
    for (const std::int32_t input : program_->input_registers) {
      if (input < 0) continue;
      double* numbers = frame_.data() + static_cast<std::size_t>(input) * kLanes;
      std::fill(numbers + lanes, numbers + end, numbers[lanes - 1]);
    }
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
  PyTypeObject *edge_type_ = nullptr, *vertex_type_ = nullptr;  // known to be types of edges and vertices
};

}  // namespace

bool evaluate_edge(PyObject* evaluator, PyObject* edge) {
  try {
    return py::handle(evaluator).cast<EdgeEvaluator&>().run(&edge, 1);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return false;
}

void bind_row_lists(py::module_& m) {
  m.def("number_vertices", &number_vertices, py::arg("vertices"), py::arg("list_number"),
        "Note in each vertex of a list the number of the list and its place there.");
  m.def("vertex_places", &vertex_places, py::arg("edges"), py::arg("arity"),
        "((n, arity) numbers of the lists, (n, arity) places) of the vertices of a list of edges.");
  m.def("robust_kernels", &robust_kernels, py::arg("edges"), py::arg("numbers").noconvert(),
        py::arg("widths").noconvert(),
        "Fill in the (n,) numbers of the robust kernels of a list of edges, 0 for none, and their (n,) widths; the "
        "classes that occur.");
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
      .def("many", &EdgeEvaluator::many, py::arg("edges"), py::arg("rows") = py::none(),
           "Of a list of edges, or of those at (k,) places in it.");
}

}  // namespace graphopt::rows
