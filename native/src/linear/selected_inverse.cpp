#include "linear/selected_inverse.h"

#include <Eigen/Dense>
#include <algorithm>

namespace graphopt {

SelectedInverse::SelectedInverse(SparseCholesky& factor) : factor_(factor), symbolic_(factor.symbolic_) {}

void SelectedInverse::blocks(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols,
                             double* out) {
  const BlockPattern& pattern = *factor_.pattern_;
  std::vector<Request> inside, outside;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const Request request{rows[k], cols[k], out};
    (in_factor(request) ? inside : outside).push_back(request);
    out += static_cast<std::int64_t>(pattern.block_dim(rows[k])) * pattern.block_dim(cols[k]);
  }
  if (!inside.empty() && solve_cost(inside) < tree_cost(inside)) {
    outside.insert(outside.end(), inside.begin(), inside.end());
    inside.clear();
  }
  if (!inside.empty()) from_tree(inside);
  if (!outside.empty()) from_solves(outside);
}

int SelectedInverse::supernode(const Request& request) const {
  return symbolic_
      .supernode_of_step[std::min(symbolic_.inverse[request.row], symbolic_.inverse[request.col])];
}

// Row of the front that holds a scalar of the elimination order, or -1.
int SelectedInverse::front_row(const Supernode& node, int scalar) const {
  const int pivot = scalar - node.first_pivot;
  if (pivot < node.num_pivots) return pivot;
  const auto begin = symbolic_.rows.begin() + node.rows_begin, end = begin + node.num_below;
  const auto found = std::lower_bound(begin, end, scalar);
  if (found == end || *found != scalar) return -1;
  return node.num_pivots + static_cast<int>(found - begin);
}

bool SelectedInverse::in_factor(const Request& request) const {
  const int last = std::max(symbolic_.inverse[request.row], symbolic_.inverse[request.col]);
  return front_row(symbolic_.supernodes[supernode(request)], symbolic_.step_offset[last]) >= 0;
}

std::vector<bool> SelectedInverse::needed_supernodes(const std::vector<Request>& requests) const {
  std::vector<bool> needed(symbolic_.supernodes.size(), false);
  for (const Request& request : requests) {
    for (int s = supernode(request); s != -1 && !needed[s]; s = symbolic_.supernodes[s].parent)
      needed[s] = true;
  }
  return needed;
}

double SelectedInverse::tree_cost(const std::vector<Request>& requests) const {
  const std::vector<bool> needed = needed_supernodes(requests);
  double cost = 0.0;
  for (std::size_t s = 0; s < needed.size(); ++s) {
    if (!needed[s]) continue;
    const double n = symbolic_.supernodes[s].num_pivots, m = symbolic_.supernodes[s].num_below;
    cost += 2.0 * m * m * n + 3.0 * m * n * n + n * n * n + (n + m) * (n + m);
  }
  return cost;
}

double SelectedInverse::solve_cost(const std::vector<Request>& requests) const {
  std::vector<std::int32_t> columns;
  for (const Request& request : requests) columns.push_back(request.col);
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  double scalars = 0.0;
  for (int col : columns) scalars += factor_.pattern_->block_dim(col);
  return scalars * 8.0 * static_cast<double>(symbolic_.factor_size);  // bound by memory: counts double
}

Eigen::MatrixXd SelectedInverse::front_inverse(int s, const Eigen::MatrixXd* parent) const {
  const Supernode& node = symbolic_.supernodes[s];
  const int n = node.num_pivots, m = node.num_below;
  Eigen::MatrixXd lower = Eigen::MatrixXd::Zero(n, n), below(m, n);
  const double* diagonal = factor_.factor_.data() + node.diagonal;
  const double* rectangle = factor_.factor_.data() + node.below;
  for (int r = 0; r < n; ++r) {
    for (int c = 0; c <= r; ++c)
      lower(r, c) = diagonal[triangle_row(r) + static_cast<std::int64_t>(c) * kStrip];
    lower(r, r) = 1.0 / lower(r, r);  // stored inverted
  }
  for (int r = 0; r < m; ++r) {
    for (int c = 0; c < n; ++c)
      below(r, c) = rectangle[rectangle_row(r, n) + static_cast<std::int64_t>(c) * kStrip];
  }
  Eigen::MatrixXd inverse(n + m, n + m);
  const Eigen::MatrixXd lower_inverse =
      lower.triangularView<Eigen::Lower>().solve(Eigen::MatrixXd::Identity(n, n));
  if (factor_.signs_.empty()) {
    inverse.topLeftCorner(n, n).noalias() = lower_inverse.transpose() * lower_inverse;
  } else {
    const Eigen::Map<const Eigen::VectorXd> signs(factor_.signs_.data() + node.first_pivot, n);
    inverse.topLeftCorner(n, n).noalias() = lower_inverse.transpose() * signs.asDiagonal() * lower_inverse;
  }
  if (m == 0) return inverse;
  const std::int32_t* row = symbolic_.parent_row.data() + node.rows_begin;
  for (int c = 0; c < m; ++c) {
    for (int r = 0; r < m; ++r) inverse(n + r, n + c) = (*parent)(row[r], row[c]);
  }
  const Eigen::MatrixXd x = below * lower_inverse;
  inverse.bottomLeftCorner(m, n).noalias() = -inverse.bottomRightCorner(m, m) * x;
  inverse.topLeftCorner(n, n).noalias() -= x.transpose() * inverse.bottomLeftCorner(m, n);
  inverse.topRightCorner(n, m) = inverse.bottomLeftCorner(m, n).transpose();
  return inverse;
}

void SelectedInverse::from_tree(const std::vector<Request>& requests) {
  const std::vector<bool> needed = needed_supernodes(requests);
  const int num = static_cast<int>(needed.size());
  std::vector<std::vector<const Request*>> of_supernode(num);
  for (const Request& request : requests) of_supernode[supernode(request)].push_back(&request);
  std::vector<Eigen::MatrixXd> inverse(num);
  std::vector<int> users(num, 0);
  for (int s = 0; s < num; ++s) {
    if (needed[s] && symbolic_.supernodes[s].parent != -1) ++users[symbolic_.supernodes[s].parent];
  }
  for (int s = num - 1; s >= 0; --s) {
    if (!needed[s]) continue;
    const Supernode& node = symbolic_.supernodes[s];
    inverse[s] = front_inverse(s, node.parent == -1 ? nullptr : &inverse[node.parent]);
    if (node.parent != -1 && --users[node.parent] == 0) inverse[node.parent].resize(0, 0);
    for (const Request* request : of_supernode[s]) {
      const int rows = factor_.pattern_->block_dim(request->row),
                cols = factor_.pattern_->block_dim(request->col);
      const int row = front_row(node, symbolic_.step_offset[symbolic_.inverse[request->row]]);
      const int col = front_row(node, symbolic_.step_offset[symbolic_.inverse[request->col]]);
      Eigen::Map<Eigen::MatrixXd>(request->out, rows, cols) = inverse[s].block(row, col, rows, cols);
    }
    if (users[s] == 0) inverse[s].resize(0, 0);
  }
}

void SelectedInverse::from_solves(std::vector<Request> requests) {
  const BlockPattern& pattern = *factor_.pattern_;
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.col < b.col; });
  std::vector<double> x(static_cast<std::size_t>(pattern.dim()));
  const std::ptrdiff_t num = static_cast<std::ptrdiff_t>(requests.size());
  for (std::ptrdiff_t begin = 0; begin < num;) {
    const int col = requests[begin].col;
    std::ptrdiff_t end = begin;
    while (end < num && requests[end].col == col) ++end;
    for (int c = 0; c < pattern.block_dim(col); ++c) {
      std::fill(x.begin(), x.end(), 0.0);
      x[pattern.offset(col) + c] = 1.0;
      factor_.solve_factorized(x.data(), x.data());
      for (auto request = requests.begin() + begin; request != requests.begin() + end; ++request) {
        const int rows = pattern.block_dim(request->row);
        std::copy_n(x.data() + pattern.offset(request->row), rows, request->out + std::ptrdiff_t{c} * rows);
      }
    }
    begin = end;
  }
}

}  // namespace graphopt
