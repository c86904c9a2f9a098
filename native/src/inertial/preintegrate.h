// Preintegration of IMU samples over many intervals, each on a thread of its own.
//
// Forster et al., TRO 2017, in the closed form that slam_bridge/preintegration.py states: how a disturbance
// of step k arrives at the end, G_k, follows from where step k and the whole interval end.
#pragma once

#include <cstdint>

namespace graphopt::inertial {

// Samples of intervals one after another: interval k has samples first[k] .. first[k + 1] - 1, at least two.
struct Samples {
  const std::int64_t* stamps = nullptr;                    // [ns], ascending within an interval
  const double *gyro = nullptr, *acc = nullptr;            // (m, 3) [rad/s], [m/s^2]
  const std::int64_t* first = nullptr;                     // (n + 1,)
  std::int64_t size = 0;                                   // n
  const double *gyro_bias = nullptr, *acc_bias = nullptr;  // (n, 3)
};

// Densities of the white noise and of the walks of the biases; `integration` is that of the position.
struct Noise {
  double gyro, acc, integration, gyro_bias, acc_bias;
};

// One row per interval.
struct Sums {
  double *duration = nullptr, *rotation = nullptr;    // (n,) [s], (n, 3, 3)
  double *velocity = nullptr, *position = nullptr;    // (n, 3)
  double* by_bias = nullptr;                          // (n, 9, 6)
  double *covariance = nullptr, *combined = nullptr;  // (n, 9, 9), (n, 15, 15)
};

// is_midpoint: the rule, else the first of a step's two samples is held.
void preintegrate(const Samples& samples, const Noise& noise, bool is_midpoint, const Sums& out);

}  // namespace graphopt::inertial
