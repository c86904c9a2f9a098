// Binding of the preintegration of IMU samples.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "exact_arrays.h"
#include "inertial/preintegrate.h"

namespace py = pybind11;
using namespace graphopt::inertial;
using graphopt::bindings::require;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

// Duration, rotation, velocity, position, by bias, covariance, combined covariance.
py::tuple bound_preintegrate(const Array<std::int64_t>& stamps, const Array<double>& gyro,
                             const Array<double>& acc, const Array<std::int64_t>& first,
                             const Array<double>& gyro_bias, const Array<double>& acc_bias,
                             const std::array<double, 5>& densities, bool is_midpoint) {
  const py::ssize_t num = first.size() - 1, rows = stamps.size();
  require(stamps.ndim() == 1 && first.ndim() == 1 && num >= 0, "stamps (m,) and first (n + 1,) are expected");
  require(gyro.size() == 3 * rows && acc.size() == 3 * rows, "gyro and acc must be (m, 3)");
  require(gyro_bias.size() == 3 * num && acc_bias.size() == 3 * num, "biases must be (n, 3)");
  require(first.at(0) == 0 && first.at(num) == rows, "first must begin at 0 and end at the samples");
  for (py::ssize_t k = 0; k < num; ++k)
    require(first.at(k + 1) >= first.at(k) + 2, "an interval needs two samples");
  const py::ssize_t three = 3, six = 6, nine = 9, all = 15;
  Array<double> duration(num), rotation({num, three, three}), velocity({num, three}), position({num, three});
  Array<double> by_bias({num, nine, six}), covariance({num, nine, nine}), combined({num, all, all});
  const Samples samples{stamps.data(), gyro.data(),      acc.data(),     first.data(),
                        num,           gyro_bias.data(), acc_bias.data()};
  const Noise noise{densities[0], densities[1], densities[2], densities[3], densities[4]};
  const Sums sums{duration.mutable_data(), rotation.mutable_data(), velocity.mutable_data(),
                  position.mutable_data(), by_bias.mutable_data(),  covariance.mutable_data(),
                  combined.mutable_data()};
  {
    const py::gil_scoped_release release;
    preintegrate(samples, noise, is_midpoint, sums);
  }
  return py::make_tuple(std::move(duration), std::move(rotation), std::move(velocity), std::move(position),
                        std::move(by_bias), std::move(covariance), std::move(combined));
}

}  // namespace

void bind_inertial(py::module_& m) {
  m.def("preintegrate", &bound_preintegrate, py::arg("stamps"), py::arg("gyro"), py::arg("acc"),
        py::arg("first"), py::arg("gyro_bias"), py::arg("acc_bias"), py::arg("densities"),
        py::arg("midpoint"),
        "Integrate n intervals of samples, interval k those from first[k] to first[k + 1]: duration (n,), "
        "rotation (n, 3, 3), velocity and position (n, 3), their derivatives by the biases (n, 9, 6), "
        "covariance (n, 9, 9), and (n, 15, 15) with the walk of the biases. densities: of gyro, acc, "
        "integration, gyro_bias, acc_bias. See native/src/inertial/preintegrate.h.");
}
