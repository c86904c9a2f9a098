// Passes over the observations of a bundle adjustment: which lie in the cones that cameras see, and who has
// how many inliers.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/shares.h"

namespace py = pybind11;

namespace {

using Table = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Rows = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Cameras = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<bool, py::array::c_style | py::array::forcecast>;

constexpr std::int64_t kRowsOfShare = 30'000;

template <class Array>
void require_rows(const Array& rows, std::int64_t count, std::int64_t num_rows, const char* name) {
  if (rows.ndim() != 1 || rows.shape(0) != count)
    throw py::value_error(std::string(name) + " must have length " + std::to_string(count));
  const auto *begin = rows.data(), *end = begin + count;
  std::int64_t low = 0, high = -1;
  for (const auto* row = begin; row < end; ++row)
    low = std::min<std::int64_t>(low, *row), high = std::max<std::int64_t>(high, *row);
  if (low < 0 || high >= num_rows)
    throw py::index_error(std::string(name) + " has row " + std::to_string(low < 0 ? low : high) +
                          " of a table with " + std::to_string(num_rows) + " rows");
}

void require_columns(const Table& table, int columns, const char* name) {
  if (table.ndim() != 2 || table.shape(1) != columns)
    throw py::value_error(std::string(name) + " must be (n, " + std::to_string(columns) + ")");
}

// v turned by the unit quaternion q (x, y, z, w).
void rotate(const double* q, const double* v, double* out) {
  const double x = q[0], y = q[1], z = q[2], w = q[3];
  const double xx = 2.0 * x * x, yy = 2.0 * y * y, zz = 2.0 * z * z, xy = 2.0 * x * y, xz = 2.0 * x * z,
               yz = 2.0 * y * z, wx = 2.0 * w * x, wy = 2.0 * w * y, wz = 2.0 * w * z;
  out[0] = (1.0 - (yy + zz)) * v[0] + (xy - wz) * v[1] + (xz + wy) * v[2];
  out[1] = (xy + wz) * v[0] + (1.0 - (xx + zz)) * v[1] + (yz - wx) * v[2];
  out[2] = (xz - wy) * v[0] + (yz + wx) * v[1] + (1.0 - (xx + yy)) * v[2];
}

struct Cone {
  double centre[3], axis[3], cosine;
};

// That of each camera at each pose, [pose][camera].
std::vector<Cone> cones_of(const Table& world_T_body, const Table& body_T_cam, const Table& cosine) {
  const std::int64_t num_cameras = body_T_cam.shape(0);
  const double ahead[3] = {0.0, 0.0, 1.0};
  std::vector<Cone> cones;
  cones.reserve(static_cast<std::size_t>(world_T_body.shape(0) * num_cameras));
  for (std::int64_t k = 0; k < world_T_body.shape(0); ++k)
    for (std::int64_t c = 0; c < num_cameras; ++c) {
      const double *pose = world_T_body.data(k, 0), *mounting = body_T_cam.data(c, 0);
      Cone cone;
      double axis[3];
      rotate(mounting + 3, ahead, axis);
      rotate(pose + 3, axis, cone.axis);
      rotate(pose + 3, mounting, cone.centre);
      for (int i = 0; i < 3; ++i) cone.centre[i] += pose[i];
      cone.cosine = cosine.data()[c];
      cones.push_back(cone);
    }
  return cones;
}

py::array_t<bool> in_cones(const Table& world_T_body, const Table& body_T_cam, const Table& cosine,
                           const Rows& keyframe, const Cameras& camera, const Table& points,
                           const Rows& landmark) {
  require_columns(world_T_body, 7, "world_T_body");
  require_columns(body_T_cam, 7, "body_T_cam");
  require_columns(points, 3, "points");
  const std::int64_t count = keyframe.size(), num_cameras = body_T_cam.shape(0);
  if (cosine.ndim() != 1 || cosine.shape(0) != num_cameras)
    throw py::value_error("body_T_cam and cosine must have one row for each camera");
  require_rows(keyframe, count, world_T_body.shape(0), "keyframe");
  require_rows(camera, count, num_cameras, "camera");
  require_rows(landmark, count, points.shape(0), "landmark");
  const std::vector<Cone> cones = cones_of(world_T_body, body_T_cam, cosine);
  py::array_t<bool> result(count);
  bool* const out = result.mutable_data();
  const double* const p = points.data();
  const std::int64_t *frames = keyframe.data(), *landmarks = landmark.data();
  const std::int32_t* const cameras = camera.data();
  const py::gil_scoped_release unlocked;
  const int shares = graphopt::ThreadPool::instance().threads_for(count, kRowsOfShare);
  graphopt::for_each_share(count, shares, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      const Cone& cone = cones[static_cast<std::size_t>(frames[o] * num_cameras + cameras[o])];
      double depth = 0.0, squared = 0.0;
      for (int i = 0; i < 3; ++i) {
        const double away = p[landmarks[o] * 3 + i] - cone.centre[i];
        depth += cone.axis[i] * away;
        squared += away * away;
      }
      out[o] =
          std::isfinite(squared) && depth > (cone.cosine == 0.0 ? 0.0 : cone.cosine * std::sqrt(squared));
    }
  });
  return result;
}

// Inliers by keyframe and by landmark, and the keyframes with an inlier of a landmark that is known or that
// another keyframe has an inlier of.
py::tuple tally(const Flags& inliers, const Rows& keyframe, const Rows& landmark, std::int64_t num_keyframes,
                const Flags& known) {
  const std::int64_t count = inliers.size(), num_landmarks = known.size();
  require_rows(keyframe, count, num_keyframes, "keyframe");
  require_rows(landmark, count, num_landmarks, "landmark");
  py::array_t<std::int64_t> by_keyframe(num_keyframes), by_landmark(num_landmarks);
  py::array_t<bool> sharing(num_keyframes);
  std::int64_t *const of_frame = by_keyframe.mutable_data(), *const of_landmark = by_landmark.mutable_data();
  bool* const shares = sharing.mutable_data();
  std::fill_n(of_frame, num_keyframes, 0);
  std::fill_n(of_landmark, num_landmarks, 0);
  std::fill_n(shares, num_keyframes, false);
  const bool* const takes_part = inliers.data();
  const std::int64_t *frames = keyframe.data(), *landmarks = landmark.data();
  std::vector<std::int64_t> seen_by(static_cast<std::size_t>(num_landmarks), -1);
  std::vector<char> shared(known.data(), known.data() + num_landmarks);
  for (std::int64_t o = 0; o < count; ++o) {
    if (!takes_part[o]) continue;
    ++of_frame[frames[o]];
    std::int64_t& first = seen_by[static_cast<std::size_t>(landmarks[o])];
    if (++of_landmark[landmarks[o]] == 1) first = frames[o];
    if (frames[o] != first) shared[static_cast<std::size_t>(landmarks[o])] = 1;
  }
  for (std::int64_t o = 0; o < count; ++o)
    if (takes_part[o] && shared[static_cast<std::size_t>(landmarks[o])] != 0) shares[frames[o]] = true;
  return py::make_tuple(by_keyframe, by_landmark, sharing);
}

}  // namespace

void bind_observations(py::module_& m) {
  m.def("in_cones", &in_cones, py::arg("world_T_body"), py::arg("body_T_cam"), py::arg("cosine"),
        py::arg("keyframe"), py::arg("camera"), py::arg("points"), py::arg("landmark"),
        "(o,) bool: the points that keyframes' cameras observe lie in their cones, a . d > cosine |d| with d "
        "from the camera to the point and a its axis z; false where d is not finite.");
  m.def("tally", &tally, py::arg("inliers"), py::arg("keyframe"), py::arg("landmark"),
        py::arg("num_keyframes"), py::arg("known"),
        "Inliers (o,) by keyframe and by landmark, and (k,) bool: the keyframe has an inlier of a landmark "
        "that is known (m,) or that another keyframe has an inlier of.");
}
