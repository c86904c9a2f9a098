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

// (classes of the robust kernels, (n,) which of them or -1, (n,) widths, 1 without kernel) of edges.
py::tuple robust_kernels(const py::list& edges) {
  const py::ssize_t count = static_cast<py::ssize_t>(edges.size());
  py::array_t<std::int32_t> which(count);
  py::array_t<double> widths(count);
  std::int32_t* w = which.mutable_data();
  double* width = widths.mutable_data();
  std::vector<PyTypeObject*> classes;
  for (py::ssize_t i = 0; i < count; ++i) {
    PyObject* edge = PyList_GET_ITEM(edges.ptr(), i);
    if (!is_edge(edge)) throw py::type_error("robust_kernels: not an edge");
    PyObject* kernel = as_edge(edge)->kernel;
    w[i] = -1;
    width[i] = 1.0;
    if (kernel == nullptr || kernel == Py_None) continue;
    if (!PyObject_TypeCheck(kernel, &kernel_width_type))
      throw py::type_error("set_robust_kernel takes a RobustKernel* or None, got a " +
                           std::string(Py_TYPE(kernel)->tp_name));
    const auto found = std::find(classes.begin(), classes.end(), Py_TYPE(kernel));
    w[i] = static_cast<std::int32_t>(found - classes.begin());
    if (found == classes.end()) classes.push_back(Py_TYPE(kernel));
    width[i] = reinterpret_cast<KernelWidth*>(kernel)->delta;
  }
  py::list result;
  for (PyTypeObject* one : classes)
    result.append(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(one)));
  return py::make_tuple(result, which, widths);
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
    if (!is_edge(edge)) throw py::type_error("EdgeEvaluator: not an edge");
    PyObject* vertices = as_edge(edge)->vertices;
    const std::int32_t *input = program_->input_registers.data(), *end = input + program_->num_inputs();
    const auto put = [&](PyObject* object, int column) {
      const double* x = numbers<double>(object, column);
      const Py_ssize_t size = x == nullptr ? 0 : as_row(object)->chunk->row_size[column];
      for (Py_ssize_t k = 0; k < size && input != end; ++k, ++input)
        if (*input >= 0) frame_[static_cast<std::size_t>(*input) * kLanes + lane] = x[k];
    };
    for (Py_ssize_t i = 0; vertices != nullptr && i < PyList_GET_SIZE(vertices); ++i) {
      PyObject* vertex = PyList_GET_ITEM(vertices, i);
      if (!is_vertex(vertex)) return false;
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
  m.def("places_of", &places_of, py::arg("objects"),
        "Per chunk of a list of objects (chunk, places, rows); consecutive numbers as a slice.");
  m.def("number_vertices", &number_vertices, py::arg("vertices"), py::arg("list_number"),
        "Note in each vertex of a list the number of the list and its place there.");
  m.def("vertex_places", &vertex_places, py::arg("edges"), py::arg("arity"),
        "((n, arity) numbers of the lists, (n, arity) places) of the vertices of a list of edges.");
  m.def("robust_kernels", &robust_kernels, py::arg("edges"),
        "(classes, (n,) which or -1, (n,) widths) of the robust kernels of a list of edges.");
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
