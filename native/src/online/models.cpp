// Models of edges, and models that are brought from other estimates.
#include <Eigen/Dense>
#include <algorithm>

#include "online/problem.h"
#include "online/step_derivative.h"

namespace graphopt::online {

const double* Problem::H_of(std::int32_t e) const {
  if (edge_kind[e] < 0) return prior_models[edge_row[e]]->H->data();
  const EdgeKind& own = kind_of(e);
  return own.models.data() + static_cast<std::int64_t>(edge_row[e]) * own.num_outputs + 1;
}

const double* Problem::gradient_of(std::int32_t e) const {
  if (edge_kind[e] < 0) return prior_models[edge_row[e]]->gradient.data();
  const EdgeKind& own = kind_of(e);
  return own.models.data() + static_cast<std::int64_t>(edge_row[e]) * own.num_outputs + own.first_segment;
}

double Problem::rho_of(std::int32_t e) const {
  return edge_kind[e] < 0 ? prior_models[edge_row[e]]->chi2 : H_of(e)[-1];
}

int Problem::state_dim(std::int32_t e) const {
  return edge_kind[e] < 0 ? priors[edge_row[e]]->first.back() : kind_of(e).state_dim;
}

namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

// The symmetric matrix of an edge's packed blocks, and back.
template <class Visit>
void for_each_entry(const EdgeKind& own, const Visit& visit) {
  for (std::size_t k = 0; k < own.entry_row.size(); ++k) visit(own.entry_row[k], own.entry_column[k]);
}

MatrixXd unpacked(const EdgeKind& own, const double* blocks) {
  MatrixXd H(own.state_dim, own.state_dim);
  for_each_entry(own, [&](int i, int j) { H(i, j) = H(j, i) = *blocks++; });
  return H;
}

}  // namespace

std::vector<double> Problem::matrix_of(int k, const double* blocks) const {
  const MatrixXd H = unpacked(*edge_kinds[static_cast<std::size_t>(k)], blocks);
  return std::vector<double>(H.data(), H.data() + H.size());
}

double Problem::model_chi2(std::int32_t e, const double* d) const {
  if (d == nullptr) return rho_of(e);
  static thread_local std::vector<double> own;
  own.resize(static_cast<std::size_t>(state_dim(e)));
  double* target = own.data();
  for (int s = 0; s < arity(e); ++s) {
    const std::int32_t v = vertices_of(e)[s];
    target = is_free(v) ? std::copy_n(d + offset[v], dim(v), target) : std::fill_n(target, dim(v), 0.0);
  }
  const auto size = static_cast<Eigen::Index>(own.size());
  const Eigen::Map<const VectorXd> x(own.data(), size), g(gradient_of(e), size);
  double square = 0.0;
  if (edge_kind[e] < 0) {
    square = x.dot(Eigen::Map<const MatrixXd>(H_of(e), size, size) * x);
  } else {
    const double* block = H_of(e);
    for_each_entry(kind_of(e),
                   [&](int i, int j) { square += (i == j ? 1.0 : 2.0) * *block++ * x[i] * x[j]; });
  }
  return rho_of(e) + square - 2.0 * x.dot(g);
}

// `outputs` are those at the estimates oplus steps, with delta a step from there. With d from the estimates,
// delta = M (d - steps):  H <- M' H M,  g <- M' g + H steps,  rho <- rho + 2 (M' g)' steps + steps' H steps.
void Problem::shift_model(std::int32_t e, const double* steps, double* outputs) const {
  const EdgeKind& own = kind_of(e);
  const int size = own.state_dim;
  MatrixXd M = MatrixXd::Identity(size, size);
  VectorXd d = VectorXd::Zero(size);
  int first = 0;
  for (int s = 0; s < own.arity(); ++s) {
    const std::int32_t v = vertices_of(e)[s];
    const int n = dim(v);
    if (is_free(v)) d.segment(first, n) = Eigen::Map<const VectorXd>(steps + offset[v], n);
    if (!d.segment(first, n).isZero(0.0)) {
      M.block(first, first, n, n) =
          step_derivative(*kinds[static_cast<std::size_t>(kind[v])], estimate(v), d.data() + first);
    }
    first += n;
  }
  if (d.isZero(0.0)) return;
  double* block = outputs + 1;
  const MatrixXd H = M.transpose() * unpacked(own, block) * M;
  Eigen::Map<VectorXd> g(outputs + own.first_segment, size);
  g = (M.transpose() * g).eval();
  outputs[0] += d.dot(2.0 * g + H * d);
  g += H * d;
  for_each_entry(own, [&](int i, int j) { *block++ = H(i, j); });
}

void Problem::drop_share(std::int32_t e) {
  forget_determined();
  add_chi2(-rho_of(e));
  const double* segment = gradient_of(e);
  for (int s = 0; s < arity(e); ++s) {
    const std::int32_t v = vertices_of(e)[s];
    for (int i = 0; i < dim(v); ++i, ++segment)
      if (is_free(v)) add_pending(v, i, -*segment);
  }
  if (edge_kind[e] < 0) {
    auto model = std::make_shared<PriorModel>(*prior_models[edge_row[e]]);
    model->chi2 = 0.0;
    std::fill(model->gradient.begin(), model->gradient.end(), 0.0);
    prior_models.set(edge_row[e], std::move(model));
    return;
  }
  EdgeKind& its = *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  const std::int64_t first = static_cast<std::int64_t>(edge_row[e]) * its.num_outputs;
  const std::vector<double> zeros(static_cast<std::size_t>(its.state_dim), 0.0);
  its.models.set(first, 0.0);
  its.models.write(first + its.first_segment, zeros.data(), its.state_dim);
}

void Problem::sum_again(std::vector<double>& g) {
  g.assign(static_cast<std::size_t>(pending.size()), 0.0);
  long double total = 0.0L;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(edge_kind.size()); ++e) {
    if (!is_active(e)) continue;
    total += rho_of(e);
    const double* segment = gradient_of(e);
    for (int s = 0; s < arity(e); ++s) {
      const std::int32_t v = vertices_of(e)[s];
      for (int i = 0; i < dim(v); ++i, ++segment)
        if (is_free(v)) g[static_cast<std::size_t>(offset[v] + i)] += *segment;
    }
  }
  total_.set(0, static_cast<double>(total));
  total_.set(1, static_cast<double>(total - static_cast<long double>(static_cast<double>(total))));
}

}  // namespace graphopt::online
