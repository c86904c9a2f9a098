// Models of edges: what they are after steps, without evaluating the edges.
#include <algorithm>

#include "online/problem.h"

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

int Problem::state_dim(std::int32_t e) const {
  return edge_kind[e] < 0 ? priors[edge_row[e]]->first.back() : kind_of(e).state_dim;
}

void Problem::times_H(std::int32_t e, const double* d, double* out) const {
  const double* block = H_of(e);
  const int size = state_dim(e);
  std::fill_n(out, size, 0.0);
  if (edge_kind[e] < 0) {
    for (int j = 0; j < size; ++j, block += size)
      for (int i = 0; i < size; ++i) out[i] += block[i] * d[j];
    return;
  }
  const EdgeKind& own = kind_of(e);
  const int arity = own.arity();
  int fa = 0;
  for (int a = 0; a < arity; ++a) {
    const int da = own.dims[static_cast<std::size_t>(a)];
    for (int j = 0; j < da; ++j)
      for (int i = 0; i <= j; ++i, ++block) {
        out[fa + i] += *block * d[fa + j];
        if (i != j) out[fa + j] += *block * d[fa + i];
      }
    int fb = fa + da;
    for (int b = a + 1; b < arity; ++b) {
      const int db = own.dims[static_cast<std::size_t>(b)];
      for (int j = 0; j < db; ++j)
        for (int i = 0; i < da; ++i, ++block) {
          out[fa + i] += *block * d[fb + j];
          out[fb + j] += *block * d[fa + i];
        }
      fb += db;
    }
    fa += da;
  }
}

namespace {

// Scratch for the scalars of an edge.
struct Scalars {
  explicit Scalars(int size) {
    if (size > kMost) many.resize(2 * static_cast<std::size_t>(size));
    d = size > kMost ? many.data() : few;
    product = d + size;
  }
  static constexpr int kMost = 64;
  double few[2 * kMost];
  std::vector<double> many;
  double *d, *product;
};

}  // namespace

double Problem::model_chi2(std::int32_t e) const {
  const int size = state_dim(e), its_arity = arity(e);
  Scalars own(size);
  double* target = own.d;
  for (int s = 0; s < its_arity; ++s) {
    const std::int32_t v = vertices_of(e)[s];
    target = std::copy_n(steps.data() + offset[v], dim(v), target);
  }
  times_H(e, own.d, own.product);
  const double* const g = gradient_of(e);
  double sum = edge_kind[e] < 0 ? prior_models[edge_row[e]]->chi2 : H_of(e)[-1];
  for (int i = 0; i < size; ++i) sum += own.d[i] * (own.product[i] - 2.0 * g[i]);
  return sum;
}

void Problem::model_gradient(std::int32_t e, double* out) const {
  const int size = state_dim(e), its_arity = arity(e);
  Scalars own(size);
  double* target = own.d;
  for (int s = 0; s < its_arity; ++s) {
    const std::int32_t v = vertices_of(e)[s];
    target = std::copy_n(steps.data() + offset[v], dim(v), target);
  }
  times_H(e, own.d, own.product);
  const double* const g = gradient_of(e);
  for (int i = 0; i < size; ++i) out[i] = g[i] - own.product[i];
}

// The model of an edge around where its moving vertices are now.
void Problem::fold(std::int32_t e, const std::vector<char>& is_moving) {
  const int size = state_dim(e), its_arity = arity(e);
  Scalars own(size);
  double* target = own.d;
  for (int s = 0; s < its_arity; ++s) {
    const std::int32_t v = vertices_of(e)[s];
    if (is_moving[static_cast<std::size_t>(v)]) {
      target = std::copy_n(steps.data() + offset[v], dim(v), target);
    } else {
      target = std::fill_n(target, dim(v), 0.0);
    }
  }
  times_H(e, own.d, own.product);
  const double* const g = gradient_of(e);
  double change = 0.0;
  for (int i = 0; i < size; ++i) change += own.d[i] * (own.product[i] - 2.0 * g[i]);
  if (edge_kind[e] < 0) {
    auto model = std::make_shared<PriorModel>(*prior_models[edge_row[e]]);
    model->chi2 += change;
    for (int i = 0; i < size; ++i) model->gradient[static_cast<std::size_t>(i)] -= own.product[i];
    prior_models.set(edge_row[e], std::move(model));
    return;
  }
  EdgeKind& its = *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  const std::int64_t first = static_cast<std::int64_t>(edge_row[e]) * its.num_outputs;
  its.models.set(first, its.models[first] + change);
  for (int i = 0; i < size; ++i) own.product[i] = g[i] - own.product[i];
  its.models.write(first + its.first_segment, own.product, size);
}

void Problem::recenter(const std::vector<std::int32_t>& vertices) {
  is_moving_.resize(static_cast<std::size_t>(num_places()), 0);
  edge_stamp_.resize(static_cast<std::size_t>(edge_kind.size()), 0);
  ++stamp_;
  std::vector<std::vector<std::int32_t>> by_kind(kinds.size());
  for (const std::int32_t v : vertices) {
    if (is_moving_[static_cast<std::size_t>(v)] || !has_step(v)) continue;
    is_moving_[static_cast<std::size_t>(v)] = 1;
    by_kind[static_cast<std::size_t>(kind[v])].push_back(v);
  }
  for (const auto& own : by_kind)
    for (const std::int32_t v : own)
      for (std::int32_t entry = first_of[v]; entry >= 0; entry = entry_next[entry]) {
        const std::int32_t e = entry_edge[entry];
        if (!is_active(e) || edge_stamp_[static_cast<std::size_t>(e)] == stamp_) continue;
        edge_stamp_[static_cast<std::size_t>(e)] = stamp_;
        fold(e, is_moving_);
      }
  std::vector<double> values, zeros;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    VertexKind& own = *kinds[k];
    oplus(static_cast<int>(k), by_kind[k], values);
    zeros.assign(static_cast<std::size_t>(own.tangent_dim), 0.0);
    for (std::size_t i = 0; i < by_kind[k].size(); ++i) {
      const std::int32_t v = by_kind[k][i];
      own.estimate.write(static_cast<std::int64_t>(row[v]) * own.storage_dim,
                         values.data() + i * static_cast<std::size_t>(own.storage_dim), own.storage_dim);
      steps.write(offset[v], zeros.data(), own.tangent_dim);
      is_moving_[static_cast<std::size_t>(v)] = 0;
    }
  }
}

void Problem::drop_share(std::int32_t e) {
  add_chi2(-model_chi2(e));
  std::vector<double> g(static_cast<std::size_t>(state_dim(e)));
  model_gradient(e, g.data());
  const double* segment = g.data();
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
  std::fill(g.begin(), g.end(), 0.0);
  its.models.set(first, 0.0);
  its.models.write(first + its.first_segment, g.data(), its.state_dim);
}

void Problem::add_steps(const std::vector<std::int32_t>& vertices, const double* dx, double scale) {
  for (const std::int32_t v : vertices)
    for (std::int64_t k = offset[v], end = k + dim(v); k < end; ++k) {
      const double step = scale * dx[k];
      steps.set(k, steps[k] + step);
      drifts.set(k, drifts[k] + step);
    }
}

void Problem::sum_again(std::vector<double>& g) {
  g.assign(static_cast<std::size_t>(steps.size()), 0.0);
  long double total = 0.0L;
  std::vector<double> own;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(edge_kind.size()); ++e) {
    if (!is_active(e)) continue;
    total += model_chi2(e);
    own.resize(static_cast<std::size_t>(state_dim(e)));
    model_gradient(e, own.data());
    const double* segment = own.data();
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
