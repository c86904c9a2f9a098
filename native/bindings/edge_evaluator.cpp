// Errors and chi2 of edge objects of the g2o interface by the error program of their type.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rows.h"
#include "vm/lanes.h"
#include "vm/program.h"

namespace graphopt::rows {
namespace {

using namespace graphopt::vm;

// Runs the error program of an edge type on edges, a chunk of lanes at a time.
class EdgeEvaluator {
 public:
  explicit EdgeEvaluator(std::shared_ptr<const Program> program)
      : program_(std::move(program)), frame_(static_cast<std::size_t>(program_->num_registers) * kLanes) {
    fill_constants(*program_, frame_.data(), kLanes);
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
    const std::int32_t *input = program_->input_registers.data(), *end = input + program_->num_inputs();
    double* frame = frame_.data() + lane;
    const auto put = [&](PyObject* object, int column) {
      const double* x = numbers<double>(object, column);
      const Py_ssize_t size = x == nullptr ? 0 : as_row(object)->chunk->row_size[column];
      for (Py_ssize_t k = 0; k < size && input != end; ++k, ++input)
        if (*input >= 0) frame[static_cast<std::size_t>(*input) * kLanes] = x[k];
    };
    for (Py_ssize_t i = 0; i < as_edge(edge)->num_vertices; ++i) {
      PyObject* vertex = as_edge(edge)->vertices[i];
      if (vertex == nullptr) return false;
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
  AlignedVector<double> frame_;                                 // guarded by the interpreter lock
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

void bind_edge_evaluator(py::module_& m) {
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
