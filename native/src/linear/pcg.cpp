#include "linear/pcg.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "linear/conjugate_gradients.h"
#include "linear/errors.h"
#include "linear/small_blocks.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

// own += column block times x and, off the diagonal, its transpose.
template <int Dim>
void multiply_column(const BlockPattern& pattern, int col, const double* values, const double* x,
                     double* own) {
  const int cols = Dim > 0 ? Dim : pattern.block_dim(col);
  const double* block = values + pattern.value_offset(pattern.column_begin(col));
  const std::int64_t col_offset = pattern.offset(col);
  for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
    const int row = pattern.row(k), rows = Dim > 0 ? Dim : pattern.block_dim(row);
    const std::int64_t row_offset = pattern.offset(row);
    add_times(own + row_offset, block, x + col_offset, rows, cols, 1.0);
    if (row != col) add_transposed_times(own + col_offset, block, x + row_offset, rows, cols, 1.0);
    block += rows * cols;
  }
}

}  // namespace

PatternOperator::PatternOperator(std::shared_ptr<const BlockPattern> pattern) : pattern_(std::move(pattern)) {
  cost_.reserve(pattern_->num_blocks() + 1);
  for (std::int64_t k : pattern_->col_ptr()) cost_.push_back(pattern_->value_offset(k));
}

void PatternOperator::diagonal_blocks(double* out) {
  for (int block = 0; block < num_blocks(); ++block) {
    const int dim = pattern_->block_dim(block);
    std::copy_n(values_ + pattern_->value_offset(pattern_->diagonal(block)), dim * dim, out);
    if (damping_ != nullptr) {
      for (int i = 0; i < dim; ++i) out[i * dim + i] += damping_[pattern_->offset(block) + i];
    }
    out += dim * dim;
  }
}

void PatternOperator::multiply(const double* x, double* y, const Team& team) {
  double* const own = partial_.of(team.thread);
  std::fill(own, own + pattern_->dim(), 0.0);
  const int end = share_begin(cost_, team.thread + 1, team.num_threads);
  for (int col = share_begin(cost_, team.thread, team.num_threads); col < end; ++col) {
    multiply_column<0>(*pattern_, col, values_, x, own);
  }
  team.wait();
  std::int64_t first, last;
  partition(pattern_->dim(), team.thread, team.num_threads, first, last);
  for (std::int64_t i = first; i < last; ++i) {
    y[i] = partial_.sum(i, team.num_threads) + (damping_ != nullptr ? damping_[i] * x[i] : 0.0);
  }
}

int PatternOperator::worth_threads() const {
  constexpr std::int64_t values_per_thread = 10000;  // about 10 us
  return static_cast<int>(
      std::clamp<std::int64_t>(pattern_->values_size() / values_per_thread, 1, ThreadPool::max_threads));
}

void PatternOperator::multiply(const double* values, const double* x, double* y) {
  std::lock_guard<CallMutex> lock(mutex_);
  set(values, nullptr);
  const auto prepare = [&](int threads) { require_threads(threads); };
  run_team(worth_threads(), prepare, [&](const Team& team) { multiply(x, y, team); });
}

Pcg::Pcg(std::shared_ptr<BlockOperator> matrix, double tolerance, std::int64_t max_iterations)
    : matrix_(std::move(matrix)),
      tolerance_(tolerance),
      max_iterations_(max_iterations < 0 ? dim() : max_iterations) {
  block_offset_.push_back(0);
  int largest = 0;
  for (int block = 0; block < matrix_->num_blocks(); ++block) {
    const int size = matrix_->dims()[block];
    largest = std::max(largest, size);
    block_offset_.push_back(block_offset_.back() + std::int64_t{size} * size);
  }
  scratch_.resize(static_cast<std::size_t>(largest) * largest);
}

bool Pcg::factorize() {
  std::lock_guard<CallMutex> lock(mutex_);
  inverse_.resize(static_cast<std::size_t>(block_offset_.back()));
  diagonal_.resize(inverse_.size());
  matrix_->diagonal_blocks(diagonal_.data());
  ready_ = false;
  failed_block_ = -1;
  for (int block = 0; block < matrix_->num_blocks(); ++block) {
    double* const own = diagonal_.data() + block_offset_[block];
    double* const inverse = inverse_.data() + block_offset_[block];
    const int dim = matrix_->dims()[block];
    if (invert_spd<0>(own, nullptr, inverse, scratch_.data(), dim)) continue;
    if (matrix_->block_instead(block, own) && invert_spd<0>(own, nullptr, inverse, scratch_.data(), dim))
      continue;
    failed_block_ = block;
    return false;
  }
  ready_ = true;
  return true;
}

void Pcg::precondition(const double* r, double* s, int begin, int end) const {
  for (int block = begin; block < end; ++block) {
    const int dim = matrix_->dims()[block];
    const std::int64_t row = matrix_->offset(block);
    std::fill(s + row, s + row + dim, 0.0);
    add_times(s + row, inverse_.data() + block_offset_[block], r + row, dim, dim, 1.0);
  }
}

// Sum of the threads' parts in their order; the same number on every thread. Holds a barrier.
double Pcg::dot(const double* a, const double* b, std::int64_t begin, std::int64_t end, const Team& team) {
  double sum = 0.0;
  for (std::int64_t i = begin; i < end; ++i) sum += a[i] * b[i];
  team.wait();  // everyone has read the sums of the dot product before
  partial_[team.thread].value = sum;
  team.wait();
  double total = 0.0;
  for (int t = 0; t < team.num_threads; ++t) total += partial_[t].value;
  return total;
}

void Pcg::solve(const double* b, double* x) {
  std::lock_guard<CallMutex> lock(mutex_);
  if (!ready_) throw LinearStateError("solve: call factorize() first and check that it returns True.");
  for (std::vector<double>* vector : {&r_, &d_, &q_, &s_, &x_})
    vector->resize(static_cast<std::size_t>(dim()));
  const auto prepare = [&](int threads) {
    matrix_->require_threads(threads);
    if (static_cast<int>(partial_.size()) < threads) partial_.resize(threads);
  };
  run_team(matrix_->worth_threads(), prepare, [&](const Team& team) { solve_team(b, x_.data(), team); });
  throw_if_stopped();
  std::copy(x_.begin(), x_.end(), x);
  is_first_ = false;
}

// What one member of the team does with its rows.
class Pcg::Rows {
 public:
  Rows(Pcg& solver, const double* b, double* x, const Team& team)
      : own_(solver),
        team_(team),
        first_(share_begin(solver.block_offset_, team.thread, team.num_threads)),
        last_(share_begin(solver.block_offset_, team.thread + 1, team.num_threads)),
        begin_(solver.matrix_->offset(first_)),
        end_(solver.matrix_->offset(last_)),
        b_(b),
        x_(x),
        r_(solver.r_.data()),
        d_(solver.d_.data()),
        q_(solver.q_.data()),
        s_(solver.s_.data()) {}

  double start() {
    std::fill(x_ + begin_, x_ + end_, 0.0);
    std::fill(d_ + begin_, d_ + end_, 0.0);
    std::copy(b_ + begin_, b_ + end_, r_ + begin_);
    return preconditioned();
  }

  // Not a number where the caller is asked to stop.
  double curvature(double beta) {
    for (std::int64_t i = begin_; i < end_; ++i) d_[i] = s_[i] + beta * d_[i];
    if (team_.thread == 0) own_.stops_ = stop_requested();
    team_.wait();  // all of d is needed by the product
    own_.matrix_->multiply(d_, q_, team_);
    team_.wait();  // q is complete: its parts are not those of `begin .. end`
    const double curvature = own_.dot(d_, q_, begin_, end_, team_);
    return own_.stops_ ? std::numeric_limits<double>::quiet_NaN() : curvature;
  }

  double step(double alpha) {
    for (std::int64_t i = begin_; i < end_; ++i) {
      x_[i] += alpha * d_[i];
      r_[i] -= alpha * q_[i];
    }
    return preconditioned();
  }

 private:
  double preconditioned() {
    own_.precondition(r_, s_, first_, last_);
    return own_.dot(r_, s_, begin_, end_, team_);
  }

  Pcg& own_;
  const Team& team_;
  const int first_, last_;  // its blocks
  const std::int64_t begin_, end_;
  const double* const b_;
  double *const x_, *const r_, *const d_, *const q_, *const s_;
};

void Pcg::solve_team(const double* b, double* x, const Team& team) {
  const ConjugateRule rule{std::max(tolerance_, share_), share_, worth_, max_iterations_,
                           ConjugateRule::patience_after(is_first_ ? -1 : outcome_.iterations)};
  Rows rows(*this, b, x, team);
  const ConjugateOutcome outcome = conjugate_gradients(rows, rule);
  if (team.thread == 0) outcome_ = outcome;
}

}  // namespace graphopt
