// Bindings of the convex relaxation of pose graphs.
#include "edges/relaxation.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>

#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::edges;
using graphopt::BlockPattern;

namespace {

using namespace graphopt::bindings;
using Pair = std::array<py::object, 2>;

// Edges of a group, and the arrays that they are in.
class Group {
 public:
  Group(int dim, const py::object& measurement, const py::object& weights, const py::object& vertices,
        const Pair& numbers)
      : measurement_(exact<double>(measurement, "measurement", 2)),
        weights_(exact<double>(weights, "weights", 2)),
        vertices_(exact<std::int32_t>(vertices, "vertices", 2)),
        numbers_{exact<double>(numbers[0], "numbers", 2), exact<double>(numbers[1], "numbers", 2)} {
    const py::ssize_t size = vertices_.shape(0), pose = dim + dim * dim, width = measurement_.shape(1);
    require(dim == 2 || dim == 3, "dim must be 2 or 3");
    require(vertices_.shape(1) == 2 && weights_.shape(1) == 2, "vertices and weights must be (m, 2)");
    require(measurement_.shape(0) == size && weights_.shape(0) == size, "there must be a row per edge");
    require(numbers_[0].shape(1) == pose && (width == dim || width == pose) && numbers_[1].shape(1) == width,
            "numbers and measurement must be those of poses, or of places in the second slot");
    for (py::ssize_t e = 0; e < size; ++e)
      for (int slot = 0; slot < 2; ++slot)
        require(
            vertices_.data()[2 * e + slot] >= 0 && vertices_.data()[2 * e + slot] < numbers_[slot].shape(0),
            "a vertex is none of the numbers' rows");
    edges = {size,
             dim,
             width == dim,
             measurement_.data(),
             weights_.data(),
             vertices_.data(),
             {numbers_[0].data(), numbers_[1].data()}};
  }

  py::ssize_t num_vertices(int slot) const { return numbers_[slot].shape(0); }

  RelaxedEdges edges;

 private:
  ExactArray<double> measurement_, weights_;
  ExactArray<std::int32_t> vertices_;
  std::array<ExactArray<double>, 2> numbers_;
};

void bound_add(const Group& group, const Pair& blocks, bool places_only,
               const std::shared_ptr<BlockPattern>& pattern, const py::object& values, const py::object& b) {
  const int d = group.edges.dim;
  auto h = exact<double>(values, "values", 1);
  auto right = exact<double>(b, "b", 2);
  require(h.size() == pattern->values_size() && right.shape(0) == pattern->dim() && right.shape(1) == d,
          "values and b must fit the pattern");
  const std::array<ExactArray<std::int64_t>, 2> own{exact<std::int64_t>(blocks[0], "blocks", 1),
                                                    exact<std::int64_t>(blocks[1], "blocks", 1)};
  for (int slot = 0; slot < 2; ++slot) {
    const bool is_point = slot == 1 && group.edges.to_points;
    const int rows = places_only || is_point ? 1 : d + 1;
    require(own[slot].size() == group.num_vertices(slot), "there must be a block per vertex");
    for (py::ssize_t row = 0; row < own[slot].size(); ++row) {
      const std::int64_t block = own[slot].data()[row];
      require(
          block < pattern->num_blocks() && (block < 0 || pattern->block_dim(static_cast<int>(block)) == rows),
          "the blocks are not those of the pattern");
    }
  }
  double *const to = h.mutable_data(), *const to_right = right.mutable_data();
  const std::int64_t* const found[2] = {own[0].data(), own[1].data()};
  const py::gil_scoped_release unlocked;
  add_relaxed(group.edges, found, places_only ? Unknowns::kPlaces : Unknowns::kAll, *pattern, to, to_right);
}

double bound_cost(const Group& group) {
  const py::gil_scoped_release unlocked;
  return relaxed_cost(group.edges);
}

py::array bound_weights(const py::object& information, const py::object& rows, int dim) {
  const auto matrices = exact<double>(information, "information", 3);
  const auto taken = exact<std::int64_t>(rows, "rows", 1);
  const py::ssize_t k = matrices.shape(1), size = taken.size(), num_matrices = matrices.shape(0);
  require((dim == 2 || dim == 3) && matrices.shape(2) == k && k >= dim && k <= 2 * dim,
          "information must be matrices of places, or of places and turns");
  require(std::all_of(taken.data(), taken.data() + size,
                      [&](std::int64_t row) { return row >= 0 && row < num_matrices; }),
          "a row is none of the matrices'");
  py::array_t<double> result({size, py::ssize_t{2}});
  double* const out = result.mutable_data();
  const py::gil_scoped_release unlocked;
  relaxed_weights(matrices.data(), static_cast<int>(k), taken.data(), size, dim, out);
  return result;
}

py::tuple bound_subtract(const std::shared_ptr<BlockPattern>& pattern, const py::object& values,
                         const py::object& x, const py::object& b) {
  const auto h = exact<double>(values, "values", 1), unknowns = exact<double>(x, "x", 2),
             right = exact<double>(b, "b", 2);
  const py::ssize_t d = unknowns.shape(1);
  const auto& dims = pattern->dims();
  require((d == 2 || d == 3) && right.shape(1) == d && unknowns.shape(0) == pattern->dim() &&
              right.shape(0) == pattern->dim() && h.size() == pattern->values_size() &&
              std::all_of(dims.begin(), dims.end(), [&](int one) { return one == 1 || one == d + 1; }),
          "values, x and b must fit the pattern of poses and points");
  py::array_t<double> less(h.size()), residual({right.shape(0), d});
  double *const to = less.mutable_data(), *const left = residual.mutable_data();
  {
    const py::gil_scoped_release unlocked;
    std::copy_n(h.data(), h.size(), to);
    subtract_multipliers(*pattern, static_cast<int>(d), unknowns.data(), right.data(), to, left);
  }
  return py::make_tuple(less, residual);
}

py::array bound_nearest(const py::object& matrices) {
  const auto given = exact<double>(matrices, "matrices", 3);
  const py::ssize_t size = given.shape(0), d = given.shape(1);
  require((d == 2 || d == 3) && given.shape(2) == d, "matrices must be (n, 2, 2) or (n, 3, 3)");
  py::array_t<double> result({size, d, d});
  double* const out = result.mutable_data();
  const py::gil_scoped_release unlocked;
  nearest_rotations(given.data(), size, static_cast<int>(d), out);
  return result;
}

}  // namespace

void bind_relaxation(py::module_& m) {
  py::class_<Group>(m, "RelaxedEdges",
                    "Edges from poses to poses or points, with the numbers of their vertices. The arrays are "
                    "kept, not copied.")
      .def(py::init<int, const py::object&, const py::object&, const py::object&, const Pair&>(),
           py::arg("dim"), py::arg("measurement"), py::arg("weights"), py::arg("vertices"),
           py::arg("numbers"))
      .def("add", &bound_add, py::arg("blocks"), py::arg("places_only"), py::arg("pattern"),
           py::arg("values"), py::arg("b"), "Add the normal equations to values and b.")
      .def("cost", &bound_cost, "Weighted squares at the numbers.");
  m.def("relaxed_weights", &bound_weights, py::arg("information"), py::arg("rows"), py::arg("dim"),
        "(m, 2) harmonic means of eigenvalues, of translation and rotation.");
  m.def("subtract_multipliers", &bound_subtract, py::arg("pattern"), py::arg("values"), py::arg("x"),
        py::arg("b"), "M - L, and (M - L) x - b.");
  m.def("nearest_rotations", &bound_nearest, py::arg("matrices"),
        "(n, d, d) rotations nearest to matrices in the Frobenius norm.");
}
