// The loops of SchurComplement, for block dimensions known at compile time (0: at run time).
#pragma once

#include <algorithm>
#include <limits>

#include "linear/schur_complement.h"
#include "linear/small_blocks.h"

namespace graphopt {

struct SchurComplement::Kernels {
  int (*invert)(SchurComplement&, const Team&);  // first failing block, or INT_MAX
  void (*reduce)(SchurComplement&, const Team&);
  void (*back_substitute)(SchurComplement&, const double* x_kept, double* x, const Team&);
  void (*multiply)(SchurComplement&, const double* x, double* y, const Team&);
  void (*diagonal_blocks)(SchurComplement&, double* out, const Team&);
};

template <int KeptDim, int EliminatedDim>
struct SchurComplement::Loops {
  static const Kernels& kernels() {
    static const Kernels table{&invert, &reduce, &back_substitute, &multiply, &diagonal_blocks};
    return table;
  }

  static int kept_dim(const BlockPattern& pattern, int block) { return KeptDim > 0 ? KeptDim : pattern.block_dim(block); }
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
    double* const lower = self.scratch_[team.worker].data();
    for (int block = begin; block < end; ++block) {
      const int dim = eliminated_dim(pattern, block);
      const double* const h = self.values_ + pattern.value_offset(pattern.diagonal(block));
      const std::int64_t row = pattern.offset(block);
      const double* const damping = self.damping_ != nullptr ? self.damping_ + row : nullptr;
      double* const inverse = self.inverse(block);
      if (!invert_spd<EliminatedDim>(h, damping, inverse, lower, dim)) return block;
      double* const scaled = self.scaled_b(block);
      std::fill(scaled, scaled + dim, 0.0);
      add_times(scaled, inverse, self.b_ + row, dim, dim, 1.0);
    }
    return std::numeric_limits<int>::max();
  }

  // v := -W H_ll^-1 for one observation.
  static void scale_block(SchurComplement& self, const double* w, int block, int rows, int depth, double* v) {
    const double* const inverse = self.inverse(block);
    for (int p = 0; p < depth; ++p) {
      for (int i = 0; i < rows; ++i) v[p * rows + i] = -w[i] * inverse[p * depth];
      for (int q = 1; q < depth; ++q) {
        for (int i = 0; i < rows; ++i) v[p * rows + i] -= w[q * rows + i] * inverse[p * depth + q];
      }
    }
  }

  static void reduce(SchurComplement& self, const Team& team) {
    for (;;) {
      const int next = self.next_column_.fetch_add(1, std::memory_order_relaxed);
      if (next >= self.num_kept_) return;
      const int col = self.columns_by_cost_[next];
      reduce_b(self, col);
      if (self.explicit_) reduce_column(self, col, team);
    }
  }

  static void reduce_b(SchurComplement& self, int col) {
    const BlockPattern& pattern = *self.pattern_;
    const int dim = kept_dim(pattern, col);
    double* const target = self.reduced_b_.data() + pattern.offset(col);
    std::copy_n(self.b_ + pattern.offset(col), dim, target);
    for (std::int64_t o = self.observations_begin_[col]; o < self.observations_begin_[col + 1]; ++o) {
      const Observation& seen = self.observations_[o];
      const double* const w = self.values_ + pattern.value_offset(seen.stored_block);
      add_times(target, w, self.scaled_b(seen.eliminated), dim, eliminated_dim(pattern, seen.eliminated), -1.0);
    }
  }

  static void add_damping(const SchurComplement& self, int col, double* diagonal) {
    if (self.damping_ == nullptr) return;
    const int dim = kept_dim(*self.pattern_, col);
    for (int i = 0; i < dim; ++i) diagonal[i * dim + i] += self.damping_[self.pattern_->offset(col) + i];
  }

  static void reduce_column(SchurComplement& self, int col, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    const BlockPattern& reduced = *self.reduced_pattern_;
    std::int32_t* const slot = self.slot_[team.worker].data();
    double* const v = self.scratch_[team.worker].data();
    const int cols = kept_dim(pattern, col);
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
    add_damping(self, col, column + slot[col]);
    for (std::int64_t o = self.observations_begin_[col]; o < self.observations_begin_[col + 1]; ++o) {
      const Observation& seen = self.observations_[o];
      const int depth = eliminated_dim(pattern, seen.eliminated);
      scale_block(self, self.values_ + pattern.value_offset(seen.stored_block), seen.eliminated, cols, depth, v);
      const std::int64_t begin = pattern.column_begin(seen.eliminated);
      const double* w = self.values_ + pattern.value_offset(begin);
      for (std::int64_t k = begin; k <= seen.stored_block; ++k) {
        const int row = pattern.row(k), rows = kept_dim(pattern, row);
        add_product<KeptDim, EliminatedDim>(column + slot[row], w, v, rows, cols, depth);
        w += rows * depth;
      }
    }
  }

  static void diagonal_blocks(SchurComplement& self, double* out, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    double* const v = self.scratch_[team.worker].data();
    for (;;) {
      const int next = self.next_column_.fetch_add(1, std::memory_order_relaxed);
      if (next >= self.num_kept_) return;
      const int col = self.columns_by_cost_[next], dim = kept_dim(pattern, col);
      double* const block = out + self.diagonal_offset_[col];
      std::copy_n(self.values_ + pattern.value_offset(pattern.diagonal(col)), dim * dim, block);
      add_damping(self, col, block);
      for (std::int64_t o = self.observations_begin_[col]; o < self.observations_begin_[col + 1]; ++o) {
        const Observation& seen = self.observations_[o];
        const double* const w = self.values_ + pattern.value_offset(seen.stored_block);
        const int depth = eliminated_dim(pattern, seen.eliminated);
        scale_block(self, w, seen.eliminated, dim, depth, v);
        add_product<KeptDim, EliminatedDim>(block, w, v, dim, dim, depth);
      }
    }
  }

  static void back_substitute(SchurComplement& self, const double* x_kept, double* x, const Team& team) {
    const BlockPattern& pattern = *self.pattern_;
    int begin, end;
    share(self, team, begin, end);
    double* const sum = self.scratch_[team.worker].data();
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
    std::fill(sum, sum + dim, 0.0);
    const double* w = self.values_ + pattern.value_offset(pattern.column_begin(block));
    for (std::int64_t k = pattern.column_begin(block); k < pattern.diagonal(block); ++k) {
      const int row = pattern.row(k), rows = kept_dim(pattern, row);
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
    double* const sum = self.scratch_[team.worker].data();
    double* const scaled = sum + self.max_eliminated_dim_;
    for (int block = begin; block < end; ++block) {
      const int dim = eliminated_dim(pattern, block);
      project(self, x, block, dim, sum);
      std::fill(scaled, scaled + dim, 0.0);
      add_times(scaled, self.inverse(block), sum, dim, dim, -1.0);
      const double* w = self.values_ + pattern.value_offset(pattern.column_begin(block));
      for (std::int64_t k = pattern.column_begin(block); k < pattern.diagonal(block); ++k) {
        const int row = pattern.row(k), rows = kept_dim(pattern, row);
        add_times(own + pattern.offset(row), w, scaled, rows, dim, 1.0);
        w += rows * dim;
      }
    }
    team.wait();
    std::int64_t first, last;
    partition(self.kept_dim_, team.thread, team.num_threads, first, last);
    for (std::int64_t i = first; i < last; ++i) {
      y[i] = self.partial_.sum(i, team.num_threads) + (self.damping_ != nullptr ? self.damping_[i] * x[i] : 0.0);
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
        if (row != col) add_transposed_times(own + pattern.offset(col), block, x + pattern.offset(row), rows, cols, 1.0);
      }
    }
  }
};

}  // namespace graphopt
