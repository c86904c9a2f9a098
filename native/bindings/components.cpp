// Connected components of an undirected graph given as pairs: union-find with path halving.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace py = pybind11;

namespace {

using Numbers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

// (n,) smallest number of each vertex' component. The smaller root always wins, so no ranks are needed for
// the answer; path halving alone bounds a find by O(log n) amortised.
Numbers component_roots(std::int64_t num_vertices, const Numbers& pairs) {
  if (num_vertices < 0) throw py::value_error("component_roots: num_vertices is negative");
  if (pairs.ndim() != 2 || pairs.shape(1) != 2)
    throw py::value_error("component_roots: pairs must have shape (p, 2)");
  Numbers result(num_vertices);
  std::int64_t* root = result.mutable_data();
  const std::int64_t *pair = pairs.data(), *end = pair + pairs.size();
  std::int64_t wrong = -1;
  {
    const py::gil_scoped_release release;
    for (std::int64_t i = 0; i < num_vertices; ++i) root[i] = i;
    const auto find = [root](std::int64_t i) {
      while (root[i] != i) i = root[i] = root[root[i]];
      return i;
    };
    for (; pair != end && wrong < 0; pair += 2) {
      for (int k = 0; k < 2; ++k) {
        if (pair[k] < 0 || pair[k] >= num_vertices) wrong = (pair - pairs.data()) / 2;
      }
      if (wrong >= 0) break;
      const std::int64_t a = find(pair[0]), b = find(pair[1]);
      root[a > b ? a : b] = a > b ? b : a;
    }
    // a root is never larger than what it stands for, so one pass in ascending order is enough
    for (std::int64_t i = 0; i < num_vertices; ++i) root[i] = root[root[i]];
  }
  if (wrong >= 0) {
    throw py::index_error("component_roots: pair " + std::to_string(wrong) + " names a vertex outside 0 .. " +
                          std::to_string(num_vertices - 1));
  }
  return result;
}

}  // namespace

void bind_components(py::module_& m) {
  m.def("component_roots", &component_roots, py::arg("num_vertices"), py::arg("pairs"),
        "(n,) int64: the smallest number in each vertex' component; pairs (p, 2) are the edges.");
}
