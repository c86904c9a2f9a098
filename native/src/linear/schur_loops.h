// The loops of SchurComplement, for block dimensions known at compile time (0: at run time).
#pragma once

#include <algorithm>
#include <limits>

#include "linear/schur_complement.h"
#include "linear/schur_shares.h"
#include "linear/small_blocks.h"
#include "parallel/stopping.h"

namespace graphopt {

struct SchurComplement::Kernels {
  int (*invert)(SchurComplement&, const Team&);        // first failing block, or INT_MAX
  int (*subtract_share)(SchurComplement&, int share);  // the same
  void (*add_copies)(SchurComplement&, int begin, int end);
  void (*repeat)(SchurComplement&, const double* x_kept);
  void (*back_substitute_share)(SchurComplement&, int share, const double* x_kept, double* x);
  void (*reduce)(SchurComplement&, const Team&);
  void (*reduce_again)(SchurComplement&, const Team&);
  void (*back_substitute)(SchurComplement&, const double* x_kept, double* x, const Team&);
  void (*multiply)(SchurComplement&, const double* x, double* y, const Team&);
  void (*diagonal_blocks)(SchurComplement&, bool of_kept, double* out, const Team&);
};

constexpr int kPrefetchColumns = 6;         // observations ahead, where whole columns are read
constexpr int kPrefetchBlocks = 20;         // the same where only the observation's block is
constexpr std::int64_t kPrefetchMax = 512;  // doubles of a column, at most
constexpr int kPrefetchDoubles = 24;        // of the observation's own block

template <int KeptDim, int EliminatedDim>
struct SchurComplement::Loops {
  static const Kernels& kernels() {
    using OfShares = ShareLoops<KeptDim, EliminatedDim>;
    static const Kernels table{&invert,           &OfShares::subtract_share,  &OfShares::add_copies,
                               &OfShares::repeat, &OfShares::back_substitute, &reduce,
                               &reduce_again,     &back_substitute,           &multiply,
                               &diagonal_blocks};
    return table;
  }

  static int kept_dim(const BlockPattern& pattern, int block) { return pattern.block_dim(block); }
  // Of a kept block that shares an entry with an eliminated one; the others may have any size.
  static int seen_dim(const BlockPattern& pattern, int block) {
    return KeptDim > 0 ? KeptDim : pattern.block_dim(block);
  }
  static int eliminated_dim(const BlockPattern& pattern, int block) {
    return EliminatedDim > 0 ? EliminatedDim : pattern.block_dim(block);
  }

  // This thread's share of the eliminated blocks, equal in stored blocks.
  static void share(const SchurComplement& self, const Team& team, int& begin, int& end) {
    begin = self.num_kept_ + share_begin(self.eliminated_cost_, team.thread, team.num_threads);
    end = self.num_kept_ + share_begin(self.eliminated_cost_, team.thread + 1, team.num_threads);
  }

  static int invert(SchurComplement& self, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    int begin, end;
    share(self, team, begin, end);
    double* const lower = self.scratch_[team.worker].small;
    for (int block = begin; block < end; ++block) {
      if (!invert_block<EliminatedDim>(self, block, lower, eliminated_dim(pattern, block))) return block;
    }
    return std::numeric_limits<int>::max();
  }

  // v := W H_ll^-1 for one observation (H_ll^-1 is symmetric).
  static void scale_block(SchurComplement& self, const double* w, int block, int rows, int depth, double* v) {
    outer_product<Update::kSet, KeptDim, EliminatedDim>(v, rows, w, self.inverse(block), rows, depth, depth);
  }

  // The blocks of an observation lie anywhere in memory: fetch them some observations ahead, from the first
  // block of the column or only its own.
  static void prefetch(SchurComplement& self, const Observation* seen, const Observation* end, bool column) {
    seen += column ? kPrefetchColumns : kPrefetchBlocks;
    if (seen >= end) return;
    const double* const last = self.values_ + seen->value + kPrefetchDoubles;
    const double* line =
        self.values_ + (column ? std::max(seen->column_value, seen->value - kPrefetchMax) : seen->value);
    for (; line < last; line += 8) __builtin_prefetch(line);
    __builtin_prefetch(self.inverse(seen->eliminated));
    __builtin_prefetch(self.scaled_b(seen->eliminated));
    if (column) __builtin_prefetch(&self.pattern_->row_idx()[seen->stored_block]);
  }

  static void reduce(SchurComplement& self, const Team& team) { reduce_columns(self, team, self.explicit_); }

  // b_s of another b, with the inverses of before.
  static void reduce_again(SchurComplement& self, const Team& team) {
    int begin, end;
    share(self, team, begin, end);
    for (int block = begin; block < end; ++block) {
      const int dim = eliminated_dim(*self.pattern_, block);
      double* const scaled = self.scaled_b(block);
      std::fill_n(scaled, dim, 0.0);
      add_times(scaled, self.inverse(block), self.b_ + self.pattern_->offset(block), dim, dim, 1.0);
    }
    team.wait();
    reduce_columns(self, team, false);
  }

  // forms: columns of S as well as b_s.
  static void reduce_columns(SchurComplement& self, const Team& team, bool forms) {
    for (;;) {
      const int next = self.next_column_.fetch_add(1, std::memory_order_relaxed);
      if (next >= self.num_kept_ || stop_requested()) return;
      const int col = self.columns_by_cost_[next];
      const std::int64_t row = self.pattern_->offset(col);
      const int dim = kept_dim(*self.pattern_, col);
      double* const b = self.scratch_[team.worker].b;
      std::copy_n(self.b_ + row, dim, b);
      if (forms) {
        reduce_column(self, col, self.scratch_[team.worker], self.slot_[team.worker].data());
      } else {
        reduce_b(self, col, b);
      }
      std::copy_n(b, dim, self.reduced_b_.data() + row);
    }
  }

  // b -= W H_ll^-1 b_l for one observation.
  static void subtract_b(SchurComplement& self, const Observation& seen, double* b, int dim, int depth) {
    outer_product<Update::kSubtract, KeptDim, EliminatedDim>(b, dim, self.values_ + seen.value,
                                                             self.scaled_b(seen.eliminated), dim, 1, depth);
  }

  static void reduce_b(SchurComplement& self, int col, double* b) {
    const int dim = kept_dim(*self.pattern_, col);
    for (std::int64_t o = self.observations_begin_[col]; o < self.observations_begin_[col + 1]; ++o) {
      const Observation& seen = self.observations_[o];
      subtract_b(self, seen, b, dim, eliminated_dim(*self.pattern_, seen.eliminated));
    }
  }

  // block -= W V'. Where kept blocks differ in size (poses of 6 beside shared intrinsics), most are poses.
  static void subtract_block(double* block, int ld, const double* w, const double* v, int rows, int cols,
                             int depth) {
    if constexpr (KeptDim == 0 && EliminatedDim == 3) {
      if (rows == 6) {
        outer_product<Update::kSubtract, 6, 3>(block, ld, w, v, rows, cols, depth);
        return;
      }
    }
    outer_product<Update::kSubtract, KeptDim, EliminatedDim>(block, ld, w, v, rows, cols, depth);
  }

  // block := diagonal block of H + D, plus the sum over the observations.
  static void finish_diagonal(const SchurComplement& self, int col, const double* sum, double* block) {
    const BlockPattern& pattern = *self.pattern_;
    const int dim = kept_dim(pattern, col), ld = padded(dim);
    const double* const h = self.values_ + pattern.value_offset(pattern.diagonal(col));
    for (int j = 0; j < dim; ++j) {
      for (int i = 0; i < dim; ++i) block[j * dim + i] = h[j * dim + i] + sum[j * ld + i];
      if (self.damping_ != nullptr) block[j * dim + j] += self.damping_[pattern.offset(col) + j];
    }
  }

  // Sums that every observation adds to (b, the diagonal block) are kept in scratch: two threads never share
  // their cache lines.
  static void reduce_column(SchurComplement& self, int col, const Scratch& scratch, std::int32_t* slot) {
    const BlockPattern& pattern = *self.pattern_;
    const BlockPattern& reduced = *self.reduced_pattern_;
    const int cols = kept_dim(pattern, col), ld = padded(cols);
    const std::int64_t base = reduced.column_begin(col);
    double* const column = self.reduced_values_.data() + reduced.value_offset(base);
    for (std::int64_t k = base; k < reduced.column_end(col); ++k) {
      slot[reduced.row(k)] = static_cast<std::int32_t>(reduced.value_offset(k) - reduced.value_offset(base));
    }
    std::fill(column, self.reduced_values_.data() + reduced.value_offset(reduced.column_end(col)), 0.0);
    for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
      std::copy(self.values_ + pattern.value_offset(k), self.values_ + pattern.value_offset(k + 1),
                column + slot[pattern.row(k)]);
    }
    std::fill(scratch.diagonal, scratch.diagonal + ld * cols, 0.0);
    const Observation* const end = self.observations_.data() + self.observations_begin_[col + 1];
    for (const Observation* seen = self.observations_.data() + self.observations_begin_[col]; seen < end;
         ++seen) {
      prefetch(self, seen, end, true);
      const int depth = eliminated_dim(pattern, seen->eliminated), width = seen_dim(pattern, col);
      scale_block(self, self.values_ + seen->value, seen->eliminated, width, depth, scratch.small);
      subtract_b(self, *seen, scratch.b, width, depth);
      const double* w = self.values_ + seen->column_value;
      for (std::int64_t k = seen->stored_block - seen->position; k < seen->stored_block; ++k) {
        const int row = pattern.row(k), rows = seen_dim(pattern, row);
        subtract_block(column + slot[row], rows, w, scratch.small, rows, width, depth);
        w += rows * depth;
      }
      subtract_block(scratch.diagonal, ld, w, scratch.small, width, width, depth);
    }
    finish_diagonal(self, col, scratch.diagonal, column + slot[col]);
  }

  static void diagonal_blocks(SchurComplement& self, bool of_kept, double* out, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    const Scratch& scratch = self.scratch_[team.worker];
    for (;;) {
      const int next = self.next_column_.fetch_add(1, std::memory_order_relaxed);
      if (next >= self.num_kept_ || stop_requested()) return;
      const int col = self.columns_by_cost_[next], dim = kept_dim(pattern, col), ld = padded(dim);
      std::fill(scratch.diagonal, scratch.diagonal + ld * dim, 0.0);
      const Observation* const end =
          self.observations_.data() + self.observations_begin_[col + (of_kept ? 0 : 1)];
      for (const Observation* seen = self.observations_.data() + self.observations_begin_[col]; seen < end;
           ++seen) {
        prefetch(self, seen, end, false);
        const double* const w = self.values_ + seen->value;
        const int depth = eliminated_dim(pattern, seen->eliminated), width = seen_dim(pattern, col);
        scale_block(self, w, seen->eliminated, width, depth, scratch.small);
        outer_product<Update::kSubtract, KeptDim, EliminatedDim>(scratch.diagonal, ld, w, scratch.small,
                                                                 width, width, depth);
      }
      finish_diagonal(self, col, scratch.diagonal, out + self.diagonal_offset_[col]);
    }
  }

  static void back_substitute(SchurComplement& self, const double* x_kept, double* x, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    int begin, end;
    share(self, team, begin, end);
    double* const sum = self.scratch_[team.worker].small;
    for (int block = begin; block < end; ++block) {
      const int dim = eliminated_dim(pattern, block);
      project(self, x_kept, block, dim, sum);
      double* const target = x + pattern.offset(block);
      std::copy_n(self.scaled_b(block), dim, target);
      add_times(target, self.inverse(block), sum, dim, dim, -1.0);
    }
    if (team.thread == 0 && x_kept != x) std::copy_n(x_kept, self.kept_dim_, x);
  }

  // sum := H_lp x
  static void project(const SchurComplement& self, const double* x, int block, int dim, double* sum) {
    const BlockPattern& pattern = *self.pattern_;
    std::fill_n(sum, dim, 0.0);
    const double* w = self.values_ + pattern.value_offset(pattern.column_begin(block));
    for (std::int64_t k = pattern.column_begin(block); k < pattern.diagonal(block); ++k) {
      const int row = pattern.row(k), rows = seen_dim(pattern, row);
      add_transposed_times(sum, w, x + pattern.offset(row), rows, dim, 1.0);
      w += rows * dim;
    }
  }

  static void multiply(SchurComplement& self, const double* x, double* y, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    double* const own = self.partial_.of(team.thread);
    std::fill(own, own + self.kept_dim_, 0.0);
    multiply_kept(self, x, own, team);
    int begin, end;
    share(self, team, begin, end);
    double* const sum = self.scratch_[team.worker].small;
    double* const scaled = sum + self.max_eliminated_dim_;
    for (int block = begin; block < end; ++block) {
      const int dim = eliminated_dim(pattern, block);
      project(self, x, block, dim, sum);
      std::fill_n(scaled, dim, 0.0);
      add_times(scaled, self.inverse(block), sum, dim, dim, -1.0);
      const double* w = self.values_ + pattern.value_offset(pattern.column_begin(block));
      for (std::int64_t k = pattern.column_begin(block); k < pattern.diagonal(block); ++k) {
        const int row = pattern.row(k), rows = seen_dim(pattern, row);
        add_times(own + pattern.offset(row), w, scaled, rows, dim, 1.0);
        w += rows * dim;
      }
    }
    team.wait();
    std::int64_t first, last;
    partition(self.kept_dim_, team.thread, team.num_threads, first, last);
    for (std::int64_t i = first; i < last; ++i) {
      y[i] =
          self.partial_.sum(i, team.num_threads) + (self.damping_ != nullptr ? self.damping_[i] * x[i] : 0.0);
    }
  }

  // own += this thread's columns of H_pp, times x.
  static void multiply_kept(const SchurComplement& self, const double* x, double* own, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    const int end = share_begin(self.kept_cost_, team.thread + 1, team.num_threads);
    for (int col = share_begin(self.kept_cost_, team.thread, team.num_threads); col < end; ++col) {
      const int cols = kept_dim(pattern, col);
      for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
        const int row = pattern.row(k), rows = kept_dim(pattern, row);
        const double* const block = self.values_ + pattern.value_offset(k);
        add_times(own + pattern.offset(row), block, x + pattern.offset(col), rows, cols, 1.0);
        if (row != col)
          add_transposed_times(own + pattern.offset(col), block, x + pattern.offset(row), rows, cols, 1.0);
      }
    }
  }
};

}  // namespace graphopt
