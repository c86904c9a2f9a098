#include "linear/sparse_cholesky.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "linear/errors.h"
#include "linear/extend_add.h"
#include "linear/selected_inverse.h"
#include "parallel/stopping.h"

namespace graphopt {

SparseCholesky::SparseCholesky(std::shared_ptr<const BlockPattern> pattern, const std::string& ordering,
                               bool signed_pivots)
    : SparseCholesky(pattern, SymbolicFactor(*pattern, ordering), signed_pivots) {}

SparseCholesky::SparseCholesky(std::shared_ptr<const BlockPattern> pattern, SymbolicFactor symbolic,
                               bool signed_pivots)
    : pattern_(std::move(pattern)),
      symbolic_(std::move(symbolic)),
      schedule_(symbolic_, ThreadPool::instance().num_threads()),
      signed_pivots_(signed_pivots) {}

std::int64_t SparseCholesky::num_negative() const { return std::count(signs_.begin(), signs_.end(), -1.0); }

// Run task(thread, barrier) on the threads of the schedule, which is made again if their number has changed.
template <class Task>
void SparseCholesky::run(const Task& task) {
  for (;;) {
    plan();
    SpinBarrier barrier(schedule_.num_threads);
    if (schedule_.num_threads == 1) return task(0, barrier);
    const auto body = [&](int thread) { task(thread, barrier); };
    if (ThreadPool::instance().run_team(schedule_.num_threads, std::ref(body))) return;
  }
}

void SparseCholesky::plan() {
  const int threads = ThreadPool::instance().num_threads();
  const bool is_planned = schedule_.planned_for == threads;
  if (is_planned && is_allocated_) return;
  is_allocated_ = false;
  if (!is_planned) schedule_ = Schedule(symbolic_, threads);
  allocate();
  is_allocated_ = true;
}

void SparseCholesky::allocate() {
  const std::size_t dim = static_cast<std::size_t>(pattern_->dim());
  const int threads = schedule_.num_threads;
  const std::size_t padded = static_cast<std::size_t>(num_strips(schedule_.max_below)) * kStrip;
  factor_.require(symbolic_.factor_size);
  update_.require(schedule_.update_size);
  min_pivot_.resize(dim);
  if (signed_pivots_) signs_.resize(dim);
  permuted_.resize(dim);
  above_.assign(threads > 1 ? threads : 0, std::vector<double>(schedule_.top_dim, 0.0));
  scratch_.resize(threads);
  for (AlignedBuffer& buffer : scratch_) buffer.require(static_cast<std::int64_t>(padded));
  position_.assign(threads, std::vector<std::int64_t>(padded));
  failed_pivot_.assign(threads, -1);
  diagonals_.assign(threads, OrdinarySize{});
  meetings_ = schedule_.meetings();
}

std::int64_t SparseCholesky::memory_bytes() const {
  const std::int64_t doubles =
      factor_.size() + update_.size() +
      static_cast<std::int64_t>(2 * permuted_.size() + above_.size() * schedule_.top_dim);
  const std::int64_t symbolic = static_cast<std::int64_t>(symbolic_.blocks.size() * sizeof(AssemblyBlock) +
                                                          symbolic_.rows.size() * 2 * sizeof(std::int32_t) +
                                                          symbolic_.supernodes.size() * sizeof(Supernode));
  return doubles * static_cast<std::int64_t>(sizeof(double)) + symbolic;
}

std::int64_t SparseCholesky::required_bytes() const {
  const std::int64_t roots = schedule_.num_threads * static_cast<std::int64_t>(schedule_.top_dim);
  const std::int64_t vectors = 5 * pattern_->dim() + roots;
  return (symbolic_.factor_size + schedule_.update_size + vectors) *
         static_cast<std::int64_t>(sizeof(double));
}

Front SparseCholesky::front(int s) {
  const Supernode& node = symbolic_.supernodes[s];
  return Front{node.num_pivots,
               node.num_below,
               factor_.data() + node.diagonal,
               factor_.data() + node.below,
               update_.data() + schedule_.update[s],
               signed_pivots_ ? signs_.data() + node.first_pivot : nullptr};
}

bool SparseCholesky::factorize(const double* values, const double* damping) {
  std::lock_guard<CallMutex> lock(mutex_);
  factorized_ = false;
  plan();
  const bool flushed = flushes_;
  int failed = factorize_once(values, damping);
  if (flushed != flushes_) failed = factorize_once(values, damping);
  factorized_ = failed < 0;
  failed_block_ = factorized_ ? -1 : pattern_->block_of(symbolic_.scalar_source[failed]);
  return factorized_;
}

// The first failing pivot in elimination order or -1. Afterwards flushes_ says what the diagonals allow.
int SparseCholesky::factorize_once(const double* values, const double* damping) {
  for (Meeting& meeting : meetings_) meeting.fails = false;
  run([&](int thread, SpinBarrier&) { factorize_thread(thread, values, damping); });
  throw_if_stopped();
  flushes_ = std::all_of(diagonals_.begin(), diagonals_.end(), [](const auto& size) { return size.holds(); });
  int failed = std::numeric_limits<int>::max();
  for (int pivot : failed_pivot_) {
    if (pivot >= 0) failed = std::min(failed, pivot);
  }
  return failed == std::numeric_limits<int>::max() ? -1 : failed;
}

void SparseCholesky::factorize_thread(int thread, const double* values, const double* damping) {
  diagonals_[thread] = OrdinarySize{};
  const FlushDenormals flush(flushes_);
  PatientStop stop;
  failed_pivot_[thread] = schedule_.work(meetings_, thread, [&](int s, const Team& team, int* failed) {
    const bool stops = team.num_threads == 1 && stop.after(symbolic_.supernodes[s].cost);
    return stops ? kStopped : factorize_supernode(s, team, failed, values, damping);
  });
}

// Returns the failing pivot in elimination order or -1.
// failed_pivot: that the team shares.
int SparseCholesky::factorize_supernode(int s, const Team& team, int* failed_pivot, const double* values,
                                        const double* damping) {
  const Supernode& node = symbolic_.supernodes[s];
  assemble(s, team, values, damping);
  extend_add(s, false, team);
  team.wait();
  const int pivot = factor_front(front(s), min_pivot_.data() + node.first_pivot, team, failed_pivot);
  if (pivot == kStopped) return kStopped;
  if (pivot >= 0) return node.first_pivot + pivot;
  extend_add(s, true, team);
  return -1;
}

namespace {

// target(r, c) := source(r, c) of the rows of a block that lie in one strip.
inline __attribute__((always_inline)) void copy_rows(int num_rows, int num_cols, const double* source,
                                                     int row_step, int col_step, double* target) {
#pragma GCC unroll 6
  for (int c = 0; c < num_cols; ++c) {
#pragma GCC unroll 6
    for (int r = 0; r < num_rows; ++r) target[c * kStrip + r] = source[r * row_step + c * col_step];
  }
}

// The same of a whole block of Size rows and columns.
template <int Size>
void copy_square(bool is_transposed, const double* source, double* target) {
  if (is_transposed) return copy_rows(Size, Size, source, Size, 1, target);
  copy_rows(Size, Size, source, 1, Size, target);
}

// A block of H into the columns of the pivots of its front; what lies above the diagonal means nothing there.
void place(const AssemblyBlock& block, const Supernode& node, const double* values, double* diagonal,
           double* below) {
  const bool is_pivot = block.row < node.num_pivots;
  const int num_rows = block.num_rows, first = is_pivot ? block.row : block.row - node.num_pivots;
  const double* source = values + block.source;
  double* const column = (is_pivot ? diagonal : below) + static_cast<std::int64_t>(block.col) * kStrip;
  const auto at = [&](int row) {
    return column + (is_pivot ? triangle_row(row) : rectangle_row(row, node.num_pivots));
  };
  if (num_rows == block.num_cols && first % kStrip + num_rows <= kStrip) {
    if (num_rows == 3) return copy_square<3>(block.transposed, source, at(first));
    if (num_rows == 6) return copy_square<6>(block.transposed, source, at(first));
  }
  const int row_step = block.transposed ? block.num_cols : 1, col_step = block.transposed ? 1 : num_rows;
  for (int r = 0, count; r < num_rows; r += count) {
    const int row = first + r, left = kStrip - row % kStrip;  // of the strip
    count = std::min(num_rows - r, left);
    const int cols = is_pivot ? std::min<int>(block.num_cols, row + left - block.col) : block.num_cols;
    copy_rows(count, cols, source + r * row_step, row_step, col_step, at(row));
  }
}

}  // namespace

// Blocks of H and the damping go into the cleared columns of the pivots.
void SparseCholesky::assemble(int s, const Team& team, const double* values, const double* damping) {
  const Supernode& node = symbolic_.supernodes[s];
  double* const diagonal = factor_.data() + node.diagonal;
  double* const below = factor_.data() + node.below;
  std::int64_t begin, end;
  const std::int64_t size = node.below - node.diagonal + rectangle_size(node.num_below, node.num_pivots);
  partition(size, team.thread, team.num_threads, begin, end);
  std::fill(diagonal + begin, diagonal + end, 0.0);
  team.wait();
  if (team.thread == 0) {
    constexpr std::int64_t kAhead = 8;  // blocks: they are read in another order than they are stored in
    const std::int64_t last = static_cast<std::int64_t>(symbolic_.blocks.size()) - 1;
    for (std::int64_t k = symbolic_.blocks_begin[s]; k < symbolic_.blocks_begin[s + 1]; ++k) {
      const AssemblyBlock& next = symbolic_.blocks[std::min(k + kAhead, last)];
      const std::int64_t after = next.source + static_cast<std::int64_t>(next.num_rows) * next.num_cols;
      __builtin_prefetch(values + next.source);
      __builtin_prefetch(values + after - 1);
      place(symbolic_.blocks[k], node, values, diagonal, below);
    }
    OrdinarySize sizes = diagonals_[team.worker];
    for (int i = 0; i < node.num_pivots; ++i) {
      double& pivot = diagonal[triangle_row(i) + static_cast<std::int64_t>(i) * kStrip];
      if (damping != nullptr) pivot += damping[symbolic_.scalar_source[node.first_pivot + i]];
      min_pivot_[node.first_pivot + i] =
          std::numeric_limits<double>::epsilon() * (signed_pivots_ ? std::abs(pivot) : pivot);
      sizes.add(std::abs(pivot));
    }
    diagonals_[team.worker] = sizes;
  }
  team.wait();
}

namespace {

// First column of thread t's share of a lower triangle with `size` columns: equal areas.
int triangle_share(int size, int t, int num_threads) {
  if (t == num_threads) return size;
  return static_cast<int>(size * (1.0 - std::sqrt(1.0 - static_cast<double>(t) / num_threads)));
}

}  // namespace

// Add the Schur complements of the children: the columns that are pivots here (into_update false), or the
// others. Each thread of the team owns a range of target columns.
void SparseCholesky::extend_add(int s, bool into_update, const Team& team) {
  const Supernode& node = symbolic_.supernodes[s];
  const int n = node.num_pivots, m = node.num_below;
  const int shift = into_update ? n : 0, size = into_update ? m : n;
  const int begin_column = shift + triangle_share(size, team.thread, team.num_threads);
  const int end_column = shift + triangle_share(size, team.thread + 1, team.num_threads);
  const std::int64_t below = node.below - node.diagonal;
  std::int64_t* const position = position_[team.worker].data();
  for (int k = symbolic_.children_begin[s]; k < symbolic_.children_begin[s + 1]; ++k) {
    const Supernode& child = symbolic_.supernodes[symbolic_.children[k]];
    const std::int32_t* const row = symbolic_.parent_row.data() + child.rows_begin;
    ChildColumns columns;
    columns.m = child.num_below;
    columns.first = static_cast<int>(std::lower_bound(row, row + child.num_below, begin_column) - row);
    columns.last = static_cast<int>(std::lower_bound(row, row + child.num_below, end_column) - row);
    if (columns.first == columns.last) continue;
    for (int i = columns.first; i < child.num_below; ++i) {
      if (into_update) {
        position[i] = triangle_row(row[i] - n);
      } else {
        position[i] = row[i] < n ? triangle_row(row[i]) : below + rectangle_row(row[i] - n, n);
      }
    }
    columns.source = update_.data() + schedule_.update[symbolic_.children[k]];
    columns.row = row;
    columns.position = position;
    columns.target = into_update ? update_.data() + schedule_.update[s] : factor_.data() + node.diagonal;
    columns.shift = shift;
    add_child(columns);
  }
}

void SparseCholesky::solve(const double* b, double* x) {
  std::lock_guard<CallMutex> lock(mutex_);
  if (!factorized_) {
    throw LinearStateError(
        "solve: there is no factorisation; call factorize() and check that it returns True.");
  }
  solve_factorized(b, x);
}

void SparseCholesky::solve_factorized(const double* b, double* x) {
  const std::int64_t dim = pattern_->dim();
  double largest = 0.0;
  for (std::int64_t i = 0; i < dim; ++i) {
    permuted_[i] = b[symbolic_.scalar_source[i]];
    largest = std::max(largest, std::abs(permuted_[i]));
  }
  const bool flushes = flushes_ && largest >= OrdinarySize::kLeast;
  run([&](int thread, SpinBarrier& barrier) {
    const FlushDenormals flush(flushes);
    solve_thread(thread, barrier);
  });
  for (std::int64_t i = 0; i < dim; ++i) x[symbolic_.scalar_source[i]] = permuted_[i];
}

void SparseCholesky::solve_thread(int thread, SpinBarrier& barrier) {
  for (int s : schedule_.own[thread]) forward(s, thread);
  barrier.wait();
  if (thread == 0) {
    for (int s : schedule_.top) {
      const Supernode& node = symbolic_.supernodes[s];
      for (std::vector<double>& above : above_) {
        double* const own = above.data() + schedule_.top_place[node.first_pivot];
        for (int i = 0; i < node.num_pivots; ++i) {
          permuted_[node.first_pivot + i] -= own[i];
          own[i] = 0.0;
        }
      }
      forward(s, 0);
    }
    for (auto s = schedule_.top.rbegin(); s != schedule_.top.rend(); ++s) backward(*s, 0);
  }
  barrier.wait();
  const std::vector<std::int32_t>& own = schedule_.own[thread];
  for (auto s = own.rbegin(); s != own.rend(); ++s) backward(*s, thread);
}

void SparseCholesky::forward(int s, int thread) {
  const Supernode& node = symbolic_.supernodes[s];
  double* const product = scratch_[thread].data();
  forward_front(front(s), permuted_.data() + node.first_pivot, product);
  const std::int32_t* row = symbolic_.rows.data() + node.rows_begin;
  const int end = schedule_.subtree_end[s];
  int i = 0;
  for (; i < node.num_below && row[i] < end; ++i) permuted_[row[i]] -= product[i];
  if (i == node.num_below) return;
  std::vector<double>& above = above_[thread];
  for (; i < node.num_below; ++i) above[schedule_.top_place[row[i]]] += product[i];
}

void SparseCholesky::backward(int s, int thread) {
  const Supernode& node = symbolic_.supernodes[s];
  double* const above = scratch_[thread].data();
  const std::int32_t* row = symbolic_.rows.data() + node.rows_begin;
  for (int i = 0; i < node.num_below; ++i) above[i] = permuted_[row[i]];
  std::fill(above + node.num_below, above + num_strips(node.num_below) * kStrip, 0.0);
  if (signed_pivots_) {
    for (int i = node.first_pivot; i < node.first_pivot + node.num_pivots; ++i) permuted_[i] *= signs_[i];
  }
  backward_front(front(s), permuted_.data() + node.first_pivot, above);
}

void SparseCholesky::marginals(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols,
                               double* out) {
  std::lock_guard<CallMutex> lock(mutex_);
  if (!factorized_) {
    throw LinearStateError(
        "marginals: there is no factorisation; call factorize() and check that it returns True.");
  }
  SelectedInverse(*this).blocks(rows, cols, out);
}

}  // namespace graphopt
