// Steps of vertices, and priors of marginalized ones, which need the step between two estimates.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "online/problem.h"
#include "online/program_frames.h"
#include "online/step_derivative.h"

namespace graphopt::online {

using vm::kLanes;
using vm::kVectorLanes;

namespace {

// outputs(l, :) = oplus(estimates(l, :), steps(l, :)) for up to kLanes lanes; all row-major.
void run_oplus(const vm::ProgramPtr& compiled, int storage, int tangent, const double* const* estimates,
               const double* const* steps, int lanes, double* const* outputs) {
  const vm::Program& program = *compiled;
  double* const frame = Frames::of(program_frames().wide, compiled).prepare(compiled, kLanes);
  const int filled = std::min(kLanes, (lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes);
  for (int k = 0; k < storage + tangent; ++k) {
    const std::int32_t target = program.input_registers[static_cast<std::size_t>(k)];
    if (target < 0) continue;
    double* const lane = frame + static_cast<std::size_t>(target) * kLanes;
    for (int l = 0; l < filled; ++l) {
      const int from = std::min(l, lanes - 1);
      lane[l] = k < storage ? estimates[from][k] : steps[from][k - storage];
    }
  }
  vm::execute(program, frame, vm::RobustContext{}, lanes);
  for (int k = 0; k < storage; ++k) {
    const double* const lane =
        frame + static_cast<std::size_t>(program.output_registers[static_cast<std::size_t>(k)]) * kLanes;
    for (int l = 0; l < lanes; ++l) outputs[l][k] = lane[l];
  }
}

constexpr double kDifference = 1e-5;  // of central differences

// Derivative of oplus(from, .) at `step`: (storage, tangent).
Eigen::MatrixXd oplus_derivative(const VertexKind& kind, const double* from, const Eigen::VectorXd& step,
                                 Eigen::VectorXd* value) {
  const int s = kind.storage_dim, t = kind.tangent_dim;
  Eigen::MatrixXd steps(t, 2 * t + 1), results(s, 2 * t + 1);
  for (int c = 0; c < 2 * t + 1; ++c) steps.col(c) = step;
  for (int c = 0; c < t; ++c) steps(c, c) += kDifference, steps(c, t + c) -= kDifference;
  for (int first = 0; first < 2 * t + 1; first += kLanes) {
    const int lanes = std::min(kLanes, 2 * t + 1 - first);
    const double *estimates[kLanes], *moves[kLanes];
    double* outputs[kLanes];
    for (int l = 0; l < lanes; ++l) {
      estimates[l] = from;
      moves[l] = steps.col(first + l).data();
      outputs[l] = results.col(first + l).data();
    }
    run_oplus(kind.oplus, s, t, estimates, moves, lanes, outputs);
  }
  if (value != nullptr) *value = results.col(2 * t);
  return (results.leftCols(t) - results.middleCols(t, t)) / (2.0 * kDifference);
}

// d with to = from oplus d, by Gauss-Newton, and the derivative of d by a step at `to`.
Eigen::VectorXd difference(const VertexKind& kind, const double* from, const double* to,
                           Eigen::MatrixXd* derivative) {
  const Eigen::Map<const Eigen::VectorXd> goal(to, kind.storage_dim);
  Eigen::VectorXd d = Eigen::VectorXd::Zero(kind.tangent_dim), value;
  constexpr int kMostIterations = 30;
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    const Eigen::MatrixXd a = oplus_derivative(kind, from, d, &value);
    const Eigen::VectorXd step = (a.transpose() * a).ldlt().solve(a.transpose() * (goal - value));
    d += step;
    if (!(step.norm() > 1e-14 * (1.0 + d.norm()))) break;
  }
  *derivative = step_derivative(kind, from, d.data()).inverse();
  return d;
}

}  // namespace

double Problem::linearize_prior(const Prior& prior, std::vector<double>& H, std::vector<double>& b,
                                const std::vector<std::vector<double>>* moved) const {
  const int m = prior.first.back();
  Eigen::VectorXd d(m);
  Eigen::MatrixXd J = Eigen::MatrixXd::Zero(m, m);
  const double* origin = prior.origin.data();
  for (std::size_t s = 0; s < prior.vertices.size(); ++s) {
    const std::int32_t v = prior.vertices[s];
    const VertexKind& own = *kinds[static_cast<std::size_t>(kind[v])];
    const int first = prior.first[s], n = prior.first[s + 1] - first;
    const double* const at = moved == nullptr ? estimate(v)
                                              : (*moved)[static_cast<std::size_t>(kind[v])].data() +
                                                    static_cast<std::int64_t>(row[v]) * own.storage_dim;
    Eigen::MatrixXd derivative = Eigen::MatrixXd::Identity(n, n);
    if (std::equal(origin, origin + own.storage_dim, at)) {
      d.segment(first, n).setZero();
    } else {
      d.segment(first, n) = difference(own, origin, at, &derivative);
    }
    J.block(first, first, n, n) = derivative;
    origin += own.storage_dim;
  }
  const Eigen::Map<const Eigen::MatrixXd> given(prior.H.data(), m, m);
  const Eigen::Map<const Eigen::VectorXd> given_b(prior.b.data(), m);
  const Eigen::VectorXd product = given * d;
  H.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(m));
  b.resize(static_cast<std::size_t>(m));
  Eigen::Map<Eigen::MatrixXd>(H.data(), m, m) = J.transpose() * given * J;
  Eigen::Map<Eigen::VectorXd>(b.data(), m) = J.transpose() * (given_b - product);
  return d.dot(product) - 2.0 * given_b.dot(d) + prior.constant;
}

void Problem::oplus(int k, const std::vector<std::int32_t>& vertices, const double* dx, double scale,
                    std::vector<double>& out) const {
  const VertexKind& own = *kinds[static_cast<std::size_t>(k)];
  const auto s = static_cast<std::size_t>(own.storage_dim), t = static_cast<std::size_t>(own.tangent_dim);
  out.resize(std::max(out.size(), vertices.size() * s));
  std::vector<double> scaled(t * kLanes);
  for (std::size_t begin = 0; begin < vertices.size(); begin += kLanes) {
    const int lanes = static_cast<int>(std::min<std::size_t>(kLanes, vertices.size() - begin));
    const double *estimates[kLanes], *moves[kLanes];
    double* outputs[kLanes];
    for (int l = 0; l < lanes; ++l) {
      const std::int32_t v = vertices[begin + static_cast<std::size_t>(l)];
      double* const step = scaled.data() + static_cast<std::size_t>(l) * t;
      for (std::size_t i = 0; i < t; ++i) step[i] = scale * dx[static_cast<std::size_t>(offset[v]) + i];
      estimates[l] = estimate(v);
      moves[l] = step;
      outputs[l] = out.data() + (begin + static_cast<std::size_t>(l)) * s;
    }
    run_oplus(own.oplus, own.storage_dim, own.tangent_dim, estimates, moves, lanes, outputs);
  }
}

void Problem::move(const std::vector<std::int32_t>& vertices, const double* dx, double scale) {
  std::vector<std::vector<std::int32_t>> by_kind(kinds.size());
  for (const std::int32_t v : vertices) by_kind[static_cast<std::size_t>(kind[v])].push_back(v);
  std::vector<double> values;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    VertexKind& own = *kinds[k];
    oplus(static_cast<int>(k), by_kind[k], dx, scale, values);
    const double* from = values.data();
    for (const std::int32_t v : by_kind[k]) {
      own.estimate.write(static_cast<std::int64_t>(row[v]) * own.storage_dim, from, own.storage_dim);
      from += own.storage_dim;
    }
  }
}

void Problem::present(std::int32_t v, const double* step, double* out) const {
  const VertexKind& own = *kinds[static_cast<std::size_t>(kind[v])];
  const double* const from = estimate(v);
  if (step == nullptr || std::all_of(step, step + own.tangent_dim, [](double x) { return x == 0.0; })) {
    std::copy_n(from, own.storage_dim, out);
    return;
  }
  run_oplus(own.oplus, own.storage_dim, own.tangent_dim, &from, &step, 1, &out);
}

Eigen::MatrixXd step_derivative(const VertexKind& kind, const double* from, const double* d) {
  Eigen::VectorXd value;
  const Eigen::VectorXd step = Eigen::Map<const Eigen::VectorXd>(d, kind.tangent_dim);
  const Eigen::MatrixXd a = oplus_derivative(kind, from, step, &value);
  const Eigen::MatrixXd b =
      oplus_derivative(kind, value.data(), Eigen::VectorXd::Zero(kind.tangent_dim), nullptr);
  return (b.transpose() * b).ldlt().solve(b.transpose() * a);
}

}  // namespace graphopt::online
