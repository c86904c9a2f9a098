#include "linear/selected_inverse.h"

#include <Eigen/Dense>
#include <algorithm>
#include <functional>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt {
namespace {

constexpr int kPanel = 64;               // columns of a part of a dense operation
constexpr double kSmallestShared = 2e6;  // operations of one that several threads do
constexpr double kLargeFront = 5e8;      // of a front that all threads make together

double operations(double n, double m) {
  return 2.0 * m * m * n + 3.0 * m * n * n + n * n * n + (n + m) * (n + m);
}

// task(first, count) for panels of `size` columns: the same parts for any number of threads.
template <class Task>
void for_panels(int size, double work, const Task& task) {
  const int num = (size + kPanel - 1) / kPanel;
  const auto panel = [&](int p) { task(p * kPanel, std::min(kPanel, size - p * kPanel)); };
  if (work < kSmallestShared) {
    for (int p = 0; p < num; ++p) panel(p);
  } else {
    ThreadPool::instance().run_shares(num, std::ref(panel));
  }
}

}  // namespace

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
    cost += operations(n, m);
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

namespace {

// inv(L) of a lower triangular matrix.
Eigen::MatrixXd inverse_of_triangle(const Eigen::MatrixXd& lower) {
  const int n = static_cast<int>(lower.rows());
  Eigen::MatrixXd result(n, n);
  for_panels(n, 0.3 * n * n * n, [&](int first, int count) {
    const int left = n - first;
    result.block(0, first, first, count).setZero();
    auto columns = result.block(first, first, left, count);
    columns.setIdentity();
    lower.block(first, first, left, left).triangularView<Eigen::Lower>().solveInPlace(columns);
  });
  return result;
}

}  // namespace

// L of a front: its triangle, and what is below.
void SelectedInverse::unpack(const Supernode& node, Eigen::MatrixXd& lower, Eigen::MatrixXd& below) const {
  const int n = node.num_pivots, m = node.num_below;
  lower.resize(n, n);
  below.resize(m, n);
  const double* diagonal = factor_.factor_.data() + node.diagonal;
  const double* rectangle = factor_.factor_.data() + node.below;
  for_panels(n, 4.0 * n * (n + m), [&](int first, int count) {
    for (int c = first; c < first + count; ++c) {
      std::fill_n(lower.col(c).data(), c, 0.0);
      for (int r = c; r < n; ++r)
        lower(r, c) = diagonal[triangle_row(r) + static_cast<std::int64_t>(c) * kStrip];
      lower(c, c) = 1.0 / lower(c, c);  // stored inverted
      for (int r = 0; r < m; ++r)
        below(r, c) = rectangle[rectangle_row(r, n) + static_cast<std::int64_t>(c) * kStrip];
    }
  });
}

// The rows and columns of a front in inv(H):
//
//   inv(L)' inv(L) + X' P X   -X' P       X = L_below inv(L),  P: those of its rows below, in the parent's
//   -P X                       P
Eigen::MatrixXd SelectedInverse::front_inverse(int s, const Eigen::MatrixXd* parent) const {
  const Supernode& node = symbolic_.supernodes[s];
  const int n = node.num_pivots, m = node.num_below;
  Eigen::MatrixXd lower, below;
  unpack(node, lower, below);
  const Eigen::MatrixXd lower_inverse = inverse_of_triangle(lower);
  lower.resize(0, 0);
  Eigen::MatrixXd inverse(n + m, n + m), x(m, n);
  if (m > 0) {
    const std::int32_t* row = symbolic_.parent_row.data() + node.rows_begin;
    for_panels(m, 4.0 * m * m, [&](int first, int count) {
      for (int c = first; c < first + count; ++c) {
        const double* from = parent->col(row[c]).data();
        double* to = inverse.col(n + c).data() + n;
        for (int r = 0; r < m; ++r) to[r] = from[row[r]];
      }
    });
    for_panels(n, 1.0 * m * n * n, [&](int first, int count) {
      x.middleCols(first, count).noalias() =
          below.rightCols(n - first) * lower_inverse.block(first, first, n - first, count);
    });
    for_panels(m, 2.0 * m * m * n, [&](int first, int count) {  // P is symmetric: rows by its columns
      inverse.block(n + first, 0, count, n).noalias() =
          -inverse.block(n, n + first, m, count).transpose() * x;
    });
  }
  for_panels(n, 0.5 * n * n * (n + 2.0 * m), [&](int first, int count) {
    const int left = n - first;
    auto columns = inverse.block(first, first, left, count);
    const auto triangle = lower_inverse.block(first, first, left, left).triangularView<Eigen::Lower>();
    if (factor_.signs_.empty()) {
      columns.noalias() = triangle.transpose() * lower_inverse.block(first, first, left, count);
    } else {
      const Eigen::Map<const Eigen::VectorXd> signs(factor_.signs_.data() + node.first_pivot + first, left);
      const Eigen::MatrixXd scaled = signs.asDiagonal() * lower_inverse.block(first, first, left, count);
      columns.noalias() = triangle.transpose() * scaled;
    }
    if (m > 0) columns.noalias() -= x.middleCols(first, left).transpose() * inverse.block(n, first, m, count);
  });
  for_panels(n, 4.0 * n * (n + m), [&](int first, int count) {  // the upper triangle
    for (int c = first; c < first + count; ++c) {
      for (int r = 0; r < c; ++r) inverse(r, c) = inverse(c, r);
    }
  });
  for_panels(m, 4.0 * n * m, [&](int first, int count) {
    inverse.block(0, n + first, n, count) = inverse.block(n + first, 0, count, n).transpose();
  });
  return inverse;
}

void SelectedInverse::copy_blocks(int s, const Eigen::MatrixXd& inverse,
                                  const std::vector<const Request*>& requests) const {
  const Supernode& node = symbolic_.supernodes[s];
  for (const Request* request : requests) {
    const int rows = factor_.pattern_->block_dim(request->row),
              cols = factor_.pattern_->block_dim(request->col);
    const int row = front_row(node, symbolic_.step_offset[symbolic_.inverse[request->row]]);
    const int col = front_row(node, symbolic_.step_offset[symbolic_.inverse[request->col]]);
    Eigen::Map<Eigen::MatrixXd>(request->out, rows, cols) = inverse.block(row, col, rows, cols);
  }
}

// From the roots down, one generation of fronts after the other: large fronts by all threads together, small
// ones side by side. A front is kept until its children are done.
void SelectedInverse::from_tree(const std::vector<Request>& requests) {
  const std::vector<bool> needed = needed_supernodes(requests);
  const int num = static_cast<int>(needed.size());
  std::vector<std::vector<const Request*>> of_supernode(num);
  for (const Request& request : requests) of_supernode[supernode(request)].push_back(&request);
  std::vector<int> depth(num, 0);
  std::vector<char> has_children(num, 0);
  std::vector<std::vector<int>> generations;
  for (int s = num - 1; s >= 0; --s) {
    if (!needed[s]) continue;
    const int parent = symbolic_.supernodes[s].parent;
    if (parent != -1) depth[s] = depth[parent] + 1, has_children[parent] = 1;
    if (static_cast<int>(generations.size()) <= depth[s]) generations.resize(depth[s] + 1);
    generations[depth[s]].push_back(s);
  }
  std::vector<Eigen::MatrixXd> inverse(num);
  const auto make = [&](int s) {
    const int parent = symbolic_.supernodes[s].parent;
    Eigen::MatrixXd made = front_inverse(s, parent == -1 ? nullptr : &inverse[parent]);
    copy_blocks(s, made, of_supernode[s]);
    if (has_children[s]) inverse[s].swap(made);
  };
  for (std::size_t g = 0; g < generations.size(); ++g) {
    throw_if_stopped();
    std::vector<int> small;
    double work = 0.0;
    for (const int s : generations[g]) {
      const double own = operations(symbolic_.supernodes[s].num_pivots, symbolic_.supernodes[s].num_below);
      if (own > kLargeFront) {
        make(s);
      } else {
        small.push_back(s);
        work += own;
      }
    }
    const int count = static_cast<int>(small.size());
    const int shares = work < kSmallestShared ? 1 : std::min(count, 1024);
    const auto share = [&](int t) {
      std::int64_t begin, end;
      partition(count, t, shares, begin, end);
      for (std::int64_t k = begin; k < end; ++k) make(small[static_cast<std::size_t>(k)]);
    };
    if (count > 0) ThreadPool::instance().run_shares(shares, std::ref(share));
    if (g > 0)
      for (const int s : generations[g - 1]) inverse[s].resize(0, 0);
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
