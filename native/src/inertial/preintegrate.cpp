#include "inertial/preintegrate.h"

#include <Eigen/Core>
#include <Eigen/Geometry>
#include <cmath>
#include <vector>

#include "parallel/shares.h"
#include "parallel/stopping.h"

namespace graphopt::inertial {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
template <int Rows, int Columns>
using Rowwise = Eigen::Matrix<double, Rows, Columns, Eigen::RowMajor>;
using Disturbance = Eigen::Matrix<double, 9, 6>;

constexpr std::int64_t kStepsPerThread = 512;  // about 0.3 ms
constexpr double kSeriesBelow = 0.1;           // angle squared, as in graphopt/geometry/so3.py

Matrix3d skew(const Vector3d& v) {
  Matrix3d hat;
  hat << 0.0, -v[2], v[1], v[2], 0.0, -v[0], -v[1], v[0], 0.0;
  return hat;
}

// Exp (3) and right Jacobian (8) of a rotation vector.
struct Turn {
  explicit Turn(const Vector3d& omega) {
    const double x = omega.squaredNorm();
    double a, b, c;  // sin t / t, (1 - cos t) / t^2, (t - sin t) / t^3
    if (x < kSeriesBelow) {
      a = 1.0 + x * (-1.0 / 6 + x * (1.0 / 120 + x * (-1.0 / 5040 + x * (1.0 / 362880 - x / 39916800))));
      b = 0.5 + x * (-1.0 / 24 + x * (1.0 / 720 + x * (-1.0 / 40320 + x * (1.0 / 3628800 - x / 479001600))));
      c = 1.0 / 6 +
          x * (-1.0 / 120 + x * (1.0 / 5040 + x * (-1.0 / 362880 + x * (1.0 / 39916800 - x / 6227020800))));
    } else {
      const double angle = std::sqrt(x), sin = std::sin(angle), half = std::sin(0.5 * angle);
      a = sin / angle;
      b = 2.0 * half * half / x;
      c = (angle - sin) / (angle * x);
    }
    const Matrix3d hat = skew(omega), squared = hat * hat;
    exp = Matrix3d::Identity() + a * hat + b * squared;
    jacobian = Matrix3d::Identity() - b * hat + c * squared;
  }

  Matrix3d exp, jacobian;
};

// What a step leaves behind for the way back.
struct Step {
  double dt;
  Matrix3d theta, at, own;            // turn that the rest suffers; rotation of the force; turn within
  Vector3d push, velocity, position;  // gained velocity; sums after the step
};

// Intervals of one thread.
class Integral {
 public:
  Integral(const Samples& samples, const Noise& noise, bool is_midpoint)
      : samples_(samples), noise_(noise), is_midpoint_(is_midpoint) {}

  void run(std::int64_t k, const Sums& out) {
    forward(k);
    backward();
    const double duration = 1e-9 * static_cast<double>(samples_.stamps[samples_.first[k + 1] - 1] -
                                                       samples_.stamps[samples_.first[k]]);
    out.duration[k] = duration;
    Eigen::Map<Rowwise<3, 3>>(out.rotation + 9 * k) = rotation_;
    Eigen::Map<Vector3d>(out.velocity + 3 * k) = steps_.back().velocity;
    Eigen::Map<Vector3d>(out.position + 3 * k) = steps_.back().position;
    Eigen::Map<Rowwise<9, 6>>(out.by_bias + 54 * k) = -later_;
    white_.diagonal().tail<3>().array() += noise_.integration * noise_.integration * duration;
    Eigen::Map<Rowwise<9, 9>> covariance(out.covariance + 81 * k);
    covariance = white_.selfadjointView<Eigen::Lower>();
    Eigen::Map<Rowwise<15, 15>> combined(out.combined + 225 * k);
    combined.topLeftCorner<9, 9>() = covariance;
    combined.topLeftCorner<9, 9>() += Rowwise<9, 9>(walked_.selfadjointView<Eigen::Lower>());
    combined.topRightCorner<9, 6>() = crossed_;
    combined.bottomLeftCorner<6, 9>() = crossed_.transpose();
    combined.bottomRightCorner<6, 6>() = (walk_variance() * duration).asDiagonal();
  }

 private:
  Eigen::Matrix<double, 6, 1> walk_variance() const {
    Eigen::Matrix<double, 6, 1> variance;
    variance << Vector3d::Constant(noise_.gyro_bias * noise_.gyro_bias),
        Vector3d::Constant(noise_.acc_bias * noise_.acc_bias);
    return variance;
  }

  Vector3d mean(const double* values, const Vector3d& bias, std::int64_t row) const {
    const Eigen::Map<const Vector3d> before(values + 3 * row);
    if (!is_midpoint_) return before - bias;
    return 0.5 * (before + Eigen::Map<const Vector3d>(values + 3 * row + 3)) - bias;
  }

  // Equations 33, and of each step what the way back needs.
  void forward(std::int64_t k) {
    const Vector3d gyro_bias(samples_.gyro_bias + 3 * k), acc_bias(samples_.acc_bias + 3 * k);
    rotation_.setIdentity();
    Vector3d velocity = Vector3d::Zero(), position = Vector3d::Zero();
    steps_.clear();
    for (std::int64_t row = samples_.first[k]; row + 1 < samples_.first[k + 1]; ++row) {
      Step step;
      step.dt = 1e-9 * static_cast<double>(samples_.stamps[row + 1] - samples_.stamps[row]);
      const Vector3d rate = mean(samples_.gyro, gyro_bias, row), force = mean(samples_.acc, acc_bias, row);
      const Turn half(0.5 * step.dt * rate), whole(step.dt * rate);
      step.at = rotation_;
      step.own.setZero();
      if (is_midpoint_) {
        step.at = rotation_ * half.exp;
        step.own = 0.5 * step.dt * step.at * half.jacobian;
      }
      rotation_ = rotation_ * half.exp * half.exp;
      step.theta = step.dt * rotation_ * whole.jacobian;
      step.push = step.dt * (step.at * force);
      velocity += step.push;
      position += step.dt * (velocity - 0.5 * step.push);
      step.velocity = velocity;
      step.position = position;
      steps_.push_back(step);
    }
  }

  // G_k of each step, from the last to the first, and the sums of G D G' over them.
  void backward() {
    later_.setZero();
    white_.setZero();
    walked_.setZero();
    crossed_.setZero();
    Eigen::Matrix<double, 6, 1> white;
    white << Vector3d::Constant(noise_.gyro * noise_.gyro), Vector3d::Constant(noise_.acc * noise_.acc);
    const Eigen::Matrix<double, 6, 1> walk = walk_variance();
    const Vector3d velocity = steps_.back().velocity, position = steps_.back().position;
    double left = 0.0;  // time after the step [s]
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const double lever = left + 0.5 * step->dt;
      Disturbance g = Disturbance::Zero();
      g.block<3, 3>(0, 0) = rotation_.transpose() * step->theta;
      const Matrix3d pushed = skew(step->push) * step->own;
      g.block<3, 3>(3, 0) = -skew(velocity - step->velocity) * step->theta - pushed;
      g.block<3, 3>(6, 0) =
          -skew(position - step->position - left * step->velocity) * step->theta - lever * pushed;
      g.block<3, 3>(3, 3) = step->dt * step->at;
      g.block<3, 3>(6, 3) = lever * step->dt * step->at;
      add(white_, g, white / step->dt);
      add(walked_, later_, walk * step->dt);
      crossed_ -= later_ * (walk * step->dt).asDiagonal();
      later_ += g;
      left += step->dt;
    }
  }

  // sum += g diag(weight) g', the lower triangle.
  static void add(Eigen::Matrix<double, 9, 9>& sum, const Disturbance& g,
                  const Eigen::Matrix<double, 6, 1>& weight) {
    for (int c = 0; c < 6; ++c) {
      const Eigen::Matrix<double, 9, 1> scaled = weight[c] * g.col(c);
      for (int j = 0; j < 9; ++j)
        for (int i = j; i < 9; ++i) sum(i, j) += scaled[i] * g(j, c);
    }
  }

  const Samples& samples_;
  const Noise& noise_;
  const bool is_midpoint_;
  std::vector<Step> steps_;
  Matrix3d rotation_;
  Disturbance later_;                           // sum of G over the steps after this one
  Eigen::Matrix<double, 9, 9> white_, walked_;  // of white noise, of the walks; lower triangles
  Eigen::Matrix<double, 9, 6> crossed_;         // of the walks, with the biases
};

}  // namespace

void preintegrate(const Samples& samples, const Noise& noise, bool is_midpoint, const Sums& out) {
  if (samples.size == 0) return;
  const std::int64_t total = samples.first[samples.size];
  const int shares = ThreadPool::instance().threads_for(total, kStepsPerThread);
  for_each_share(samples.size, shares, [&](int, std::int64_t begin, std::int64_t end) {
    Integral integral(samples, noise, is_midpoint);
    for (std::int64_t k = begin; k < end; ++k) {
      if (stop_requested()) return;
      integral.run(k, out);
    }
  });
  throw_if_stopped();
}

}  // namespace graphopt::inertial
