// Schur complements and inverses from the tree of cliques.
#include <Eigen/Dense>
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "online/tree.h"

namespace graphopt::online {
namespace {

using Eigen::MatrixXd;

struct FrontMatrices {
  MatrixXd lower, below;  // L11, L21
};

FrontMatrices matrices_of(const Front& front) {
  const int n = front.num_pivots, m = front.num_below;
  FrontMatrices found{MatrixXd::Zero(n, n), MatrixXd(m, n)};
  for (int r = 0; r < n; ++r) {
    for (int c = 0; c <= r; ++c)
      found.lower(r, c) = front.diagonal[triangle_row(r) + static_cast<std::int64_t>(c) * kStrip];
    found.lower(r, r) = 1.0 / found.lower(r, r);  // stored inverted
  }
  for (int r = 0; r < m; ++r)
    for (int c = 0; c < n; ++c)
      found.below(r, c) = front.below[rectangle_row(r, n) + static_cast<std::int64_t>(c) * kStrip];
  return found;
}

constexpr double kLeastInformation = 1e-10;  // of what a scalar's edges make up, that a prior keeps
constexpr double kNoInformation = 1e-14;     // of the same: rounding

// A drive without absolute measurements forgets where it began: the information on its position falls with
// the cube of its length, until rounding of H hides it. Scalars whose variance is more than 1 /
// kLeastInformation times that of their edges are scaled to that variance, S <- E^-1 S E^-1 for the
// covariance S; all correlations, the best d and the least chi2 stay.
void keep_information(Prior& prior, const std::vector<double>& gross) {
  using Eigen::VectorXd;
  const auto m = static_cast<Eigen::Index>(prior.b.size());
  const VectorXd scale =
      Eigen::Map<const VectorXd>(gross.data(), m).cwiseMax(1e-300).cwiseSqrt().cwiseInverse();
  Eigen::Map<MatrixXd> H(prior.H.data(), m, m);
  Eigen::Map<VectorXd> b(prior.b.data(), m);
  const MatrixXd scaled = scale.asDiagonal() * H * scale.asDiagonal(), one = MatrixXd::Identity(m, m);
  if (Eigen::LLT<MatrixXd>(scaled - kLeastInformation * one).info() == Eigen::Success) return;
  if (Eigen::LLT<MatrixXd>(scaled - kNoInformation * one).info() != Eigen::Success) return;  // no minimum
  const MatrixXd covariance = Eigen::LLT<MatrixXd>(scaled).solve(one);
  const VectorXd E = (kLeastInformation * covariance.diagonal()).cwiseMax(1.0).cwiseSqrt();
  const VectorXd d = scale.asDiagonal() * (covariance * (scale.asDiagonal() * b));
  const double gain = b.dot(d);
  H = (E.asDiagonal() * H * E.asDiagonal()).eval();
  b = H * d;
  prior.constant += b.dot(d) - gain;
}

}  // namespace

void Tree::require_covariances() const {
  for (std::int64_t c = 0; c < cliques_.size(); ++c) {
    if (!cliques_[c].numbers || !cliques_[c].numbers->is_raised) continue;
    throw Refused("The variance of vertex " + std::to_string(problem_.id[cliques_[c].shape->frontals[0]]) +
                  " is more than 1e13 times that of its edges, which rounding hides: it has no covariance. "
                  "Fix a vertex near it, or add an absolute measurement or a loop.");
  }
}

// Z of each front from that of its parent, see linear/selected_inverse.h.
void Tree::all_marginals(const std::vector<std::int64_t>& first, double* out) {
  require_scalars();
  std::vector<std::int32_t> row(static_cast<std::size_t>(problem_.num_places()), -1);  // in the parent's Z
  std::vector<std::pair<std::int32_t, std::shared_ptr<const MatrixXd>>> stack;
  for (std::int64_t c = 0; c < cliques_.size(); ++c)
    if (cliques_[c].shape && parent_[c] == -1) stack.emplace_back(static_cast<std::int32_t>(c), nullptr);
  while (!stack.empty()) {
    const auto [c, parent] = stack.back();
    stack.pop_back();
    const Shape& shape = *cliques_[c].shape;
    const int n = shape.num_pivots, m = shape.num_below;
    const FrontMatrices own = matrices_of(front_of(c));
    const MatrixXd lower_inverse = own.lower.triangularView<Eigen::Lower>().solve(MatrixXd::Identity(n, n));
    auto z = std::make_shared<MatrixXd>(n + m, n + m);
    z->topLeftCorner(n, n).noalias() = lower_inverse.transpose() * lower_inverse;
    if (m > 0) {
      const Shape& above = *cliques_[parent_[c]].shape;
      int at = 0;
      for (const auto* vertices : {&above.frontals, &above.separator})
        for (const std::int32_t v : *vertices) {
          row[static_cast<std::size_t>(v)] = at;
          at += problem_.dim(v);
        }
      std::vector<int> rows;
      for (const std::int32_t v : shape.separator)
        for (int i = 0; i < problem_.dim(v); ++i) rows.push_back(row[static_cast<std::size_t>(v)] + i);
      for (int j = 0; j < m; ++j)
        for (int i = 0; i < m; ++i)
          (*z)(n + i, n + j) =
              (*parent)(rows[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(j)]);
      const MatrixXd x = own.below * lower_inverse;
      z->bottomLeftCorner(m, n).noalias() = -z->bottomRightCorner(m, m) * x;
      z->topLeftCorner(n, n).noalias() -= x.transpose() * z->bottomLeftCorner(m, n);
      z->topRightCorner(n, m) = z->bottomLeftCorner(m, n).transpose();
    }
    int at = 0;
    for (const std::int32_t v : shape.frontals) {
      const int dim = problem_.dim(v);
      if (first[static_cast<std::size_t>(v)] >= 0)
        Eigen::Map<MatrixXd>(out + first[static_cast<std::size_t>(v)], dim, dim) = z->block(at, at, dim, dim);
      at += dim;
    }
    for (const std::int32_t child : children_[c]) stack.emplace_back(child, z);
  }
}

// E' (L L')^-1 F = (L^-1 E)' L^-1 F with E and F columns of the identity: rows of L^-1 E are zero beside the
// path from the vertices to the root.
void Tree::covariance(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& columns,
                      double* out) {
  require_scalars();
  std::vector<std::int32_t> vertices(rows), cliques;
  vertices.insert(vertices.end(), columns.begin(), columns.end());
  std::sort(vertices.begin(), vertices.end());
  vertices.erase(std::unique(vertices.begin(), vertices.end()), vertices.end());
  for (const std::int32_t v : vertices) cliques.push_back(clique_of_[v]);
  const std::vector<std::int32_t> path = path_to_root(cliques);
  std::int32_t size = 0;
  for (const std::int32_t c : path)
    for (const std::int32_t v : cliques_[c].shape->frontals) {
      scratch_[0].local[static_cast<std::size_t>(v)] = size;  // its first row here
      size += problem_.dim(v);
    }
  std::unordered_map<std::int32_t, int> column_of;
  int count = 0;
  for (const std::int32_t v : vertices) column_of[v] = std::exchange(count, count + problem_.dim(v));
  MatrixXd x = MatrixXd::Zero(size, count);
  for (const std::int32_t v : vertices)
    for (int i = 0; i < problem_.dim(v); ++i)
      x(scratch_[0].local[static_cast<std::size_t>(v)] + i, column_of[v] + i) = 1.0;
  for (const std::int32_t c : path) forward_columns(c, x);
  for (const std::int32_t c : path)
    for (const std::int32_t v : cliques_[c].shape->frontals)
      scratch_[0].local[static_cast<std::size_t>(v)] = -1;
  const auto chosen = [&](const std::vector<std::int32_t>& of) {
    std::vector<int> found;
    for (const std::int32_t v : of)
      for (int i = 0; i < problem_.dim(v); ++i) found.push_back(column_of[v] + i);
    return found;
  };
  const std::vector<int> left = chosen(rows), right = chosen(columns);
  const MatrixXd product = x.transpose() * x;
  Eigen::Map<MatrixXd>(out, static_cast<Eigen::Index>(left.size()), static_cast<Eigen::Index>(right.size())) =
      product(left, right);
}

// Rows of the clique's frontals of L^-1 x, and what they take from those of its separator; rows by local_.
void Tree::forward_columns(std::int32_t c, MatrixXd& x) {
  const Shape& shape = *cliques_[c].shape;
  const int first = scratch_[0].local[static_cast<std::size_t>(shape.frontals[0])];
  const auto room = static_cast<std::size_t>(num_strips(shape.num_below) * kStrip);
  padded_.resize(std::max(padded_.size(), room * static_cast<std::size_t>(x.cols())));
  std::vector<double*> pivots, below;
  for (Eigen::Index column = 0; column < x.cols(); ++column) {
    if (x.col(column).segment(first, shape.num_pivots).isZero(0.0)) continue;
    below.push_back(padded_.data() + room * pivots.size());
    pivots.push_back(x.col(column).data() + first);
  }
  forward_front(front_of(c), pivots.data(), below.data(), static_cast<int>(pivots.size()));
  for (std::size_t k = 0; k < pivots.size(); ++k) {
    const double* from = below[k];
    double* const own = pivots[k] - first;
    for (const std::int32_t v : shape.separator) {
      double* const to = own + scratch_[0].local[static_cast<std::size_t>(v)];
      for (int i = 0; i < problem_.dim(v); ++i) to[i] -= *from++;
    }
  }
}

std::vector<std::shared_ptr<const Prior>> Tree::marginalize(const std::vector<std::int32_t>& vertices) {
  require_scalars();
  Plan plan;
  plan.vertex = vertices;
  plan.inner = static_cast<int>(vertices.size());
  const std::vector<std::int32_t> edges = edges_of(vertices, {});
  std::vector<char> is_seen(static_cast<std::size_t>(problem_.num_places()), 0);
  for (const std::int32_t v : vertices) is_seen[static_cast<std::size_t>(v)] = 1;
  for (const std::int32_t e : edges)
    for (int s = 0; s < problem_.arity(e); ++s) {
      const std::int32_t w = problem_.vertices_of(e)[s];
      if (!problem_.is_free(w) || is_seen[static_cast<std::size_t>(w)]) continue;
      is_seen[static_cast<std::size_t>(w)] = 1;
      plan.vertex.push_back(w);
    }
  std::sort(plan.vertex.begin() + plan.inner, plan.vertex.end());
  this->plan(plan, edges, {}, {});
  const std::size_t count = plan.nodes.size();
  std::vector<Job> jobs(count);
  std::vector<Clique> cliques(count);
  for (std::size_t k = 0; k < count; ++k) {
    Job& job = jobs[k];
    job.clique = static_cast<std::int32_t>(k);
    job.shape = plan.shapes[k];
    job.parent = plan.nodes[k].parent;
    if (job.parent >= 0) jobs[static_cast<std::size_t>(job.parent)].children.push_back(&cliques[k]);
  }
  if (const std::int32_t failed = compute(jobs, cliques); failed >= 0)
    throw_failure(jobs[static_cast<std::size_t>(failed)]);
  std::vector<std::shared_ptr<const Prior>> found;
  // what a front passes on: the right-hand side of its separator, and chi2 that is left
  std::vector<std::vector<double>> rest(count);
  std::vector<double> constant(count, 0.0);
  for (std::size_t k = 0; k < count; ++k) {
    Job& job = jobs[k];
    const Shape& shape = *job.shape;
    const int n = shape.num_pivots, m = shape.num_below;
    std::unordered_map<std::int32_t, int> row;
    int at = 0;
    for (const auto* list : {&shape.frontals, &shape.separator})
      for (const std::int32_t v : *list) {
        row[v] = at;
        at += problem_.dim(v);
      }
    vm::AlignedVector<double> b(static_cast<std::size_t>(n + m), 0.0);
    for (const std::int32_t e : shape.edges) {
      const double* segment = problem_.gradient_of(e);
      constant[k] += problem_.rho_of(e);
      for (int s = 0; s < problem_.arity(e); ++s) {
        const std::int32_t v = problem_.vertices_of(e)[s];
        const int dim = problem_.dim(v);
        const auto place = row.find(v);
        if (problem_.is_free(v) && place != row.end())
          for (int i = 0; i < dim; ++i) b[static_cast<std::size_t>(place->second + i)] += segment[i];
        segment += dim;
      }
    }
    for (const Clique* child : job.children) {
      const auto c = static_cast<std::size_t>(child - cliques.data());
      constant[k] += constant[c];
      int i = 0;
      for (const std::int32_t v : child->shape->separator)
        for (int d = 0; d < problem_.dim(v); ++d)
          b[static_cast<std::size_t>(row[v] + d)] += rest[c][static_cast<std::size_t>(i++)];
      rest[c].clear();
    }
    vm::AlignedVector<double> product(static_cast<std::size_t>(num_strips(m) * kStrip), 0.0);
    forward_front(job.numbers->front(), b.data(), product.data());
    for (int i = 0; i < n; ++i)
      constant[k] -= b[static_cast<std::size_t>(i)] * b[static_cast<std::size_t>(i)];
    rest[k].resize(static_cast<std::size_t>(m));
    for (int i = 0; i < m; ++i)
      rest[k][static_cast<std::size_t>(i)] =
          b[static_cast<std::size_t>(n + i)] - product[static_cast<std::size_t>(i)];
    if (plan.nodes[k].parent >= 0 || m == 0) continue;
    auto prior = std::make_shared<Prior>();
    prior->vertices = shape.separator;
    prior->first.push_back(0);
    for (const std::int32_t v : shape.separator) {
      prior->first.push_back(prior->first.back() + problem_.dim(v));
      const double* const estimate = problem_.estimate(v);
      prior->origin.insert(
          prior->origin.end(), estimate,
          estimate + problem_.kinds[static_cast<std::size_t>(problem_.kind[v])]->storage_dim);
    }
    prior->H.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(m));
    for (int i = 0; i < m; ++i)
      for (int j = 0; j <= i; ++j)
        prior->H[static_cast<std::size_t>(i * m + j)] = prior->H[static_cast<std::size_t>(j * m + i)] =
            job.numbers->update()[triangle_row(i) + static_cast<std::int64_t>(j) * kStrip];
    prior->b = rest[k];
    prior->constant = constant[k];
    keep_information(*prior, job.numbers->gross);
    found.push_back(std::move(prior));
  }
  return found;
}

}  // namespace graphopt::online
