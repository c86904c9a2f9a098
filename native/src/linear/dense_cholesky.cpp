#include "linear/dense_cholesky.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "linear/errors.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr std::int64_t kMinParallelDim = 128;
constexpr std::int64_t kFlopsPerThread = 2'000'000;  // 0.1 ms: the threads meet at every panel

}  // namespace

DenseCholesky::DenseCholesky(std::shared_ptr<const BlockPattern> pattern, bool signed_pivots)
    : pattern_(std::move(pattern)), signed_pivots_(signed_pivots) {}

std::int64_t DenseCholesky::num_negative() const { return std::count(signs_.begin(), signs_.end(), -1.0); }

double DenseCholesky::flops() const {
  const double n = static_cast<double>(pattern_->dim());
  return n * (n + 1.0) * (2.0 * n + 1.0) / 6.0;
}

Front DenseCholesky::front() {
  return Front{static_cast<int>(pattern_->dim()),       0, factor_.data(), nullptr, nullptr,
               signed_pivots_ ? signs_.data() : nullptr};
}

bool DenseCholesky::factorize(const double* values, const double* damping) {
  std::lock_guard<CallMutex> lock(mutex_);
  const std::int64_t dim = pattern_->dim();
  factor_.require(triangle_size(num_strips(dim)));
  min_pivot_.resize(static_cast<std::size_t>(dim));
  if (signed_pivots_) signs_.resize(static_cast<std::size_t>(dim));
  int failed = -1;
  ThreadPool& pool = ThreadPool::instance();
  for (bool done = false; !done;) {
    const int threads =
        dim < kMinParallelDim ? 1 : pool.threads_for(static_cast<std::int64_t>(flops()), kFlopsPerThread);
    if (threads == 1) {
      factorize_thread(Team{}, values, damping, &failed);
      break;
    }
    SpinBarrier barrier(threads);
    const auto body = [&](int thread) {
      factorize_thread(Team{thread, threads, &barrier}, values, damping, &failed);
    };
    done = pool.run_team(threads, std::ref(body));
  }
  throw_if_stopped();
  factorized_ = failed < 0;
  failed_block_ = factorized_ ? -1 : pattern_->block_of(failed);
  return factorized_;
}

int DenseCholesky::factorize_thread(const Team& team, const double* values, const double* damping,
                                    int* failed) {
  assemble(team, values, damping);
  return factor_front(front(), min_pivot_.data(), team, failed);
}

void DenseCholesky::assemble(const Team& team, const double* values, const double* damping) {
  double* const lower = factor_.data();
  std::int64_t begin, end;
  partition(triangle_size(num_strips(pattern_->dim())), team.thread, team.num_threads, begin, end);
  std::fill(lower + begin, lower + end, 0.0);
  team.wait();
  partition(pattern_->num_blocks(), team.thread, team.num_threads, begin, end);
  for (int col = static_cast<int>(begin); col < static_cast<int>(end); ++col) {
    const std::int64_t first_row =
        pattern_->offset(col);  // the block column is a block row of the lower triangle
    const int cols = pattern_->block_dim(col);
    for (std::int64_t k = pattern_->column_begin(col); k < pattern_->column_end(col); ++k) {
      const int row = pattern_->row(k), rows = pattern_->block_dim(row);
      const double* const block = values + pattern_->value_offset(k);
      for (int c = 0; c < cols; ++c) {
        double* const target = lower + triangle_row(first_row + c) + pattern_->offset(row) * kStrip;
        const int last = row == col ? c + 1 : rows;
        for (int r = 0; r < last; ++r) target[r * kStrip] = block[c * rows + r];
      }
    }
    for (std::int64_t i = first_row; i < first_row + cols; ++i) {
      double& pivot = lower[triangle_row(i) + i * kStrip];
      if (damping != nullptr) pivot += damping[i];
      min_pivot_[i] = std::numeric_limits<double>::epsilon() * (signed_pivots_ ? std::abs(pivot) : pivot);
    }
  }
  team.wait();
}

void DenseCholesky::solve(const double* b, double* x) {
  std::lock_guard<CallMutex> lock(mutex_);
  if (!factorized_) {
    throw LinearStateError(
        "solve: there is no factorisation; call factorize() and check that it returns True.");
  }
  solve_factorized(b, x);
}

void DenseCholesky::solve_factorized(const double* b, double* x) {
  if (x != b) std::copy_n(b, pattern_->dim(), x);
  forward_front(front(), x, nullptr);
  for (std::size_t i = 0; i < signs_.size(); ++i) x[i] *= signs_[i];
  backward_front(front(), x, nullptr);
}

void DenseCholesky::marginals(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols,
                              double* out) {
  std::lock_guard<CallMutex> lock(mutex_);
  if (!factorized_) {
    throw LinearStateError(
        "marginals: there is no factorisation; call factorize() and check that it returns True.");
  }
  std::vector<std::size_t> order(rows.size());
  std::vector<double*> target(rows.size());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    order[k] = k;
    target[k] = out;
    out += static_cast<std::int64_t>(pattern_->block_dim(rows[k])) * pattern_->block_dim(cols[k]);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cols[a] < cols[b]; });
  std::vector<double> x(static_cast<std::size_t>(pattern_->dim()));
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const int col = cols[order[begin]];
    while (end < order.size() && cols[order[end]] == col) ++end;
    for (int c = 0; c < pattern_->block_dim(col); ++c) {
      std::fill(x.begin(), x.end(), 0.0);
      x[pattern_->offset(col) + c] = 1.0;
      solve_factorized(x.data(), x.data());
      for (std::size_t i = begin; i < end; ++i) {
        const int row = rows[order[i]], dim = pattern_->block_dim(row);
        std::copy_n(x.data() + pattern_->offset(row), dim,
                    target[order[i]] + static_cast<std::ptrdiff_t>(c) * dim);
      }
    }
  }
}

}  // namespace graphopt
