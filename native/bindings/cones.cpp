// Which points lie in the cones that cameras see.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "parallel/shares.h"

namespace py = pybind11;

namespace {

using Table = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Rows = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

constexpr std::int64_t kRowsOfShare = 30'000;

void require_rows(const Rows& rows, std::int64_t count, std::int64_t num_rows, const char* name) {
  if (rows.ndim() != 1 || rows.shape(0) != count)
    throw py::value_error(std::string("in_cones: ") + name + " must have length " + std::to_string(count));
  const std::int64_t *begin = rows.data(), *end = begin + count;
  std::int64_t low = 0, high = -1;
  for (const std::int64_t* row = begin; row < end; ++row)
    low = std::min(low, *row), high = std::max(high, *row);
  if (low < 0 || high >= num_rows)
    throw py::index_error(std::string("in_cones: ") + name + " has row " +
                          std::to_string(low < 0 ? low : high) + " of a table with " +
                          std::to_string(num_rows) + " rows");
}

void require_points(const Table& table, const char* name) {
  if (table.ndim() != 2 || table.shape(1) != 3)
    throw py::value_error(std::string("in_cones: ") + name + " must be (n, 3)");
}

// (o,) with c, a, s of row views[o] and d = points[landmarks[o]] - c: a . d > s |d|, and d is finite.
py::array_t<bool> in_cones(const Table& centre, const Table& axis, const Table& cosine, const Rows& views,
                           const Table& points, const Rows& landmarks) {
  require_points(centre, "centre");
  require_points(axis, "axis");
  require_points(points, "points");
  const std::int64_t count = views.size(), num_views = centre.shape(0);
  if (axis.shape(0) != num_views || cosine.ndim() != 1 || cosine.shape(0) != num_views)
    throw py::value_error("in_cones: centre, axis and cosine must have one row for each view");
  require_rows(views, count, num_views, "views");
  require_rows(landmarks, count, points.shape(0), "landmarks");
  py::array_t<bool> result(count);
  bool* const out = result.mutable_data();
  const double *c = centre.data(), *a = axis.data(), *s = cosine.data(), *p = points.data();
  const std::int64_t *view = views.data(), *landmark = landmarks.data();
  const py::gil_scoped_release unlocked;
  const int shares = graphopt::ThreadPool::instance().threads_for(count, kRowsOfShare);
  graphopt::for_each_share(count, shares, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      double depth = 0.0, squared = 0.0;
      for (int k = 0; k < 3; ++k) {
        const double away = p[landmark[o] * 3 + k] - c[view[o] * 3 + k];
        depth += a[view[o] * 3 + k] * away;
        squared += away * away;
      }
      const double least = s[view[o]];
      out[o] = std::isfinite(squared) && depth > (least == 0.0 ? 0.0 : least * std::sqrt(squared));
    }
  });
  return result;
}

}  // namespace

void bind_cones(py::module_& m) {
  m.def("in_cones", &in_cones, py::arg("centre"), py::arg("axis"), py::arg("cosine"), py::arg("views"),
        py::arg("points"), py::arg("landmarks"),
        "(o,) bool: a . d > s |d| with d = points[landmarks[o]] - centre, a, s those of row views[o]; false "
        "where d is not finite.");
}
