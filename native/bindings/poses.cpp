// Poses between their two forms, with the digits of graphopt/geometry: compiled without contraction to fused
// multiply-adds, and every operation in that order.
//
//   storage (7)    x, y, z, qx, qy, qz, qw
//   numbers (12)   x, y, z and the rotation matrix row by row (SE3Matrix)
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace py = pybind11;

namespace {

using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;

// As `quaternion.to_matrix`.
void matrix_of(const double* q, double* m) {
  const double x = q[0], y = q[1], z = q[2], w = q[3];
  const double xx = 2.0 * x * x, yy = 2.0 * y * y, zz = 2.0 * z * z, xy = 2.0 * x * y, xz = 2.0 * x * z,
               yz = 2.0 * y * z, wx = 2.0 * w * x, wy = 2.0 * w * y, wz = 2.0 * w * z;
  m[0] = 1.0 - (yy + zz), m[1] = xy - wz, m[2] = xz + wy;
  m[3] = xy + wz, m[4] = 1.0 - (xx + zz), m[5] = yz - wx;
  m[6] = xz - wy, m[7] = yz + wx, m[8] = 1.0 - (xx + yy);
}

// As `se3_matrix.HalfTurn.quaternion`.
void quaternion_of(const double* r, double* q) {
  const double a = r[0], e = r[4], i = r[8];
  const bool none = a + e + i > 0.0, mostly_x = a > e && a > i, mostly_y = e > i;
  const bool about_x = !none && (mostly_x || !mostly_y), about_y = !none && !mostly_x;
  const double s0 = about_y ? -1.0 : 1.0, s1 = about_x ? -1.0 : 1.0, s2 = s0 * s1;
  double x = r[7] * s1 - r[5] * s2, y = r[2] * s2 - r[6] * s0, z = r[3] * s0 - r[1] * s1;
  double w = 1.0 + a * s0 + e * s1 + i * s2;
  if (about_y) {
    const double before[4] = {x, y, z, w};
    x = before[2], y = -before[3], z = -before[0], w = before[1];
  }
  if (about_x) {
    const double before[4] = {x, y, z, w};
    x = -before[3], y = -before[2], z = before[1], w = before[0];
  }
  const double factor = (w < 0.0 ? -1.0 : 1.0) / std::sqrt(x * x + y * y + z * z + w * w);
  q[0] = factor * x, q[1] = factor * y, q[2] = factor * z, q[3] = factor * w;
}

template <int From, int To, class Convert>
py::array_t<double> converted(const Numbers& given, const char* name, const Convert& convert) {
  if (given.ndim() != 2 || given.shape(1) != From)
    throw py::value_error(std::string(name) + " must be (n, " + std::to_string(From) + ")");
  const py::ssize_t count = given.shape(0);
  py::array_t<double> result({count, py::ssize_t{To}});
  const double* from = given.data();
  double* to = result.mutable_data();
  for (py::ssize_t k = 0; k < count; ++k, from += From, to += To) {
    std::copy_n(from, 3, to);
    convert(from + 3, to + 3);
  }
  return result;
}

}  // namespace

void bind_poses(py::module_& m) {
  m.def(
      "pose_matrices", [](const Numbers& poses) { return converted<7, 12>(poses, "poses", matrix_of); },
      py::arg("poses"), "(n, 12) numbers of SE3Matrix, of poses (n, 7).");
  m.def(
      "poses_of_matrices",
      [](const Numbers& numbers) { return converted<12, 7>(numbers, "numbers", quaternion_of); },
      py::arg("numbers"), "(n, 7) poses, with unit quaternions, of numbers (n, 12) of SE3Matrix.");
}
