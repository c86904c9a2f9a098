// S of few kept blocks, made landmark by landmark.
//
// Where S fits into a processor's own cache, every share of the landmarks subtracts from a copy of its own:
//
//   copy_ij -= V_i W_j',  copy_bi -= V_i b_l,   V_i = W_i H_ll^-1,   for all kept i <= j of landmark l,
//
// and the copies are added to H_pp + D and b_p in the order of the shares. Each W is read once, in the order
// of memory. The shares follow from the pattern alone, so the result does not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <limits>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "linear/schur_complement.h"
#include "linear/small_blocks.h"
#include "parallel/stopping.h"

namespace graphopt {

constexpr int padded(int size) { return (size + 7) / 8 * 8; }  // to cache lines

// H_ll^-1 and H_ll^-1 b_l of an eliminated block; false if it is not positive definite.
template <int Dim>
bool SchurComplement::invert_block(SchurComplement& self, int block, double* lower, int dim) {
  const BlockPattern& pattern = *self.pattern_;
  const double* const h = self.values_ + pattern.value_offset(pattern.diagonal(block));
  const std::int64_t row = pattern.offset(block);
  const double* const damping = self.damping_ != nullptr ? self.damping_ + row : nullptr;
  double* const inverse = self.inverse(block);
  if (!invert_spd<Dim>(h, damping, inverse, lower, dim)) return false;
  double* const scaled = self.scaled_b(block);
  std::fill_n(scaled, dim, 0.0);
  add_times(scaled, inverse, self.b_ + row, dim, dim, 1.0);
  return true;
}

// The same for blocks begin .. end, some at once; the first that is not positive definite, or `end`.
template <int Dim>
int SchurComplement::invert_blocks(SchurComplement& self, int begin, int end, double* lower) {
  const BlockPattern& pattern = *self.pattern_;
  if constexpr (Dim == 0) {
    for (int block = begin; block < end; ++block)
      if (!invert_block<0>(self, block, lower, pattern.block_dim(block))) return block;
    return end;
  } else {
    constexpr int L = kInvertLanes;
    alignas(64) double a[Dim * Dim * L], damping[Dim * L], inverse[Dim * Dim * L];
    for (int first = begin; first < end; first += L) {
      const int count = std::min(L, end - first);
      for (int l = 0; l < L; ++l) {
        const int block = first + std::min(l, count - 1);
        const double* const h = self.values_ + pattern.value_offset(pattern.diagonal(block));
        for (int k = 0; k < Dim * Dim; ++k) a[k * L + l] = h[k];
        if (self.damping_ == nullptr) continue;
        for (int k = 0; k < Dim; ++k) damping[k * L + l] = self.damping_[pattern.offset(block) + k];
      }
      const unsigned good = invert_spd_lanes<Dim>(a, self.damping_ == nullptr ? nullptr : damping, inverse);
      for (int l = 0; l < count; ++l) {
        const int block = first + l;
        if ((good >> l & 1) == 0) return block;
        double* const target = self.inverse(block);
        for (int k = 0; k < Dim * Dim; ++k) target[k] = inverse[k * L + l];
        double* const scaled = self.scaled_b(block);
        std::fill(scaled, scaled + Dim, 0.0);
        add_times(scaled, target, self.b_ + pattern.offset(block), Dim, Dim, 1.0);
      }
    }
    return end;
  }
}

// A kept block that the landmark at hand shares an entry with.
struct SchurComplement::Seen {
  std::int32_t number;  // among the seen blocks
  std::int32_t rows;
  const double* w;
  double* v;  // leading dimension as in a copy
};

struct SchurComplement::Shares {
  int num = 0;             // 0: S is made column by column
  std::vector<int> begin;  // (num + 1) eliminated blocks
  std::vector<std::int32_t>
      number;  // (num_kept) among those that share an entry with an eliminated block, or -1
  int num_seen = 0;
  std::vector<std::int32_t> place;    // [i * num_seen + j] = [j * num_seen + i], i <= j seen: first number of
                                      // the block in a copy
  std::vector<std::int32_t> b_place;  // (num_seen)
  std::int64_t copy_size = 0, scratch_size = 0;
  std::vector<std::vector<Seen>> seen;  // per share, of the landmark at hand
  AlignedBuffer copies, scratch;
  AlignedBuffer repeated;  // x of each seen block, once for each column of W

  double* copy(int share) { return copies.data() + share * copy_size; }
};

// Rows of a block in a copy: with vectors of four and eight, six and seven take as long as eight.
constexpr int leading_dim(int rows) {
#if defined(__AVX__)
  return rows == 6 || rows == 7 ? 8 : rows;
#else
  return rows;
#endif
}

template <int KeptDim, int EliminatedDim>
struct SchurComplement::ShareLoops {
  static int seen_dim(int rows) { return KeptDim > 0 ? KeptDim : rows; }
  static int eliminated_dim(const BlockPattern& pattern, int block) {
    return EliminatedDim > 0 ? EliminatedDim : pattern.block_dim(block);
  }

  // c -= a b', c and a with the leading dimension of copies.
  static void subtract(double* c, const double* a, const double* b, int rows, int cols, int depth) {
    if constexpr (KeptDim > 0 && EliminatedDim > 0) {
      subtract_pieces<leading_dim(KeptDim), KeptDim, EliminatedDim>(c, leading_dim(KeptDim), a, b);
    } else if (KeptDim == 0 && EliminatedDim == 3 && rows == 6 && cols == 6) {  // poses, where sizes differ
      constexpr int ld = leading_dim(6);
      subtract_pieces<ld, 6, 3>(c, ld, a, b);
    } else {
      const int ld = leading_dim(rows);
      for (int j = 0; j < cols; ++j)
        for (int p = 0; p < depth; ++p)
          for (int i = 0; i < rows; ++i) c[j * ld + i] -= a[p * ld + i] * b[p * cols + j];
    }
  }

  // b -= v b_l.
  static void subtract_b(double* b, const double* v, const double* b_l, int rows, int depth) {
    const int ld = leading_dim(rows);
    if constexpr (KeptDim > 0 && EliminatedDim > 0) {
      subtract_pieces<leading_dim(KeptDim), 1, EliminatedDim>(b, ld, v, b_l);
    } else {
      for (int p = 0; p < depth; ++p)
        for (int i = 0; i < rows; ++i) b[i] -= v[p * ld + i] * b_l[p];
    }
  }

  // v := W H_ll^-1.
  static void scale(double* v, const double* w, const double* inverse, int rows, int depth) {
    const int ld = leading_dim(rows);
    if constexpr (KeptDim > 0 && EliminatedDim > 0) {
#if defined(__AVX512F__)
      if constexpr (leading_dim(KeptDim) == 8) {
        const __mmask8 all = static_cast<__mmask8>((1u << KeptDim) - 1u);
        __m512d column[EliminatedDim];
        for (int p = 0; p < EliminatedDim; ++p) column[p] = _mm512_maskz_loadu_pd(all, w + p * KeptDim);
        for (int j = 0; j < EliminatedDim; ++j) {
          __m512d sum = column[0] * inverse[j];
          for (int p = 1; p < EliminatedDim; ++p) sum += column[p] * inverse[p * EliminatedDim + j];
          _mm512_storeu_pd(v + j * 8, sum);
        }
        return;
      }
#endif
      outer_pieces<Update::kSet, KeptDim, EliminatedDim>(v, ld, w, rows, inverse, depth, depth);
    } else {
      for (int j = 0; j < depth; ++j) {
        std::fill(v + j * ld, v + j * ld + rows, 0.0);
        for (int p = 0; p < depth; ++p)
          for (int i = 0; i < rows; ++i) v[j * ld + i] += w[p * rows + i] * inverse[p * depth + j];
      }
    }
  }

  // copy_ij -= V_i W_j' for all i <= j that see a landmark.
  static void subtract_pairs(const Shares& shares, double* copy, const Seen* first, const Seen* end,
                             int depth) {
#if defined(__AVX512F__)
    if constexpr (leading_dim(KeptDim) == 8 && KeptDim * EliminatedDim <= 21) {
      for (const Seen* j = first; j < end; ++j) {
        __m512d w[EliminatedDim * KeptDim];  // each number of W_j in all lanes stays in a register
#pragma GCC unroll 21
        for (int k = 0; k < EliminatedDim * KeptDim; ++k) w[k] = _mm512_set1_pd(j->w[k]);
        const std::int32_t* const place = shares.place.data() + j->number * shares.num_seen;
        for (const Seen* i = first; i <= j; ++i) {
          double* const target = copy + place[i->number];
          __m512d v[EliminatedDim];
          for (int p = 0; p < EliminatedDim; ++p) v[p] = _mm512_loadu_pd(i->v + p * 8);
#pragma GCC unroll 7
          for (int c = 0; c < KeptDim; ++c) {
            __m512d sum = _mm512_loadu_pd(target + c * 8);
            for (int p = 0; p < EliminatedDim; ++p) sum = _mm512_fnmadd_pd(v[p], w[p * KeptDim + c], sum);
            _mm512_storeu_pd(target + c * 8, sum);
          }
        }
      }
      return;
    }
#endif
    for (const Seen* i = first; i < end; ++i) {
      const std::int32_t* const place = shares.place.data() + i->number * shares.num_seen;
      for (const Seen* j = i; j < end; ++j)
        subtract(copy + place[j->number], i->v, j->w, i->rows, j->rows, depth);
    }
  }

  // All landmarks of a share; the first one that is not positive definite, or INT_MAX.
  static int subtract_share(SchurComplement& self, int share) {
    Shares& shares = *self.shares_;
    const BlockPattern& pattern = *self.pattern_;
    double* const copy = shares.copy(share);
    double* const scratch = shares.scratch.data() + share * shares.scratch_size;
    std::fill(copy, copy + shares.copy_size, 0.0);
    std::fill(scratch, scratch + shares.scratch_size, 0.0);  // rows that only fill vectors stay zero
    std::vector<Seen>& all = shares.seen[static_cast<std::size_t>(share)];
    double* const lower = scratch;
    double* const first_v = scratch + padded(self.max_eliminated_dim_ * self.max_eliminated_dim_);
    PatientStop stop;
    int inverted = shares.begin[share];
    for (int block = shares.begin[share]; block < shares.begin[share + 1]; ++block) {
      const int depth = eliminated_dim(pattern, block);
      if (block == inverted) {
        const int next = std::min(block + kInvertLanes, shares.begin[share + 1]);
        inverted = invert_blocks<EliminatedDim>(self, block, next, lower);
        if (inverted < next) return inverted;
      }
      if (const int later = block + kInvertLanes; later < shares.begin[share + 1]) {
        const double* const h = self.values_ + pattern.value_offset(pattern.diagonal(later));
        __builtin_prefetch(h);
        __builtin_prefetch(h + depth * depth - 1);
      }
      const double* const inverse = self.inverse(block);
      const double* const b = self.b_ + pattern.offset(block);
      const std::int64_t begin = pattern.column_begin(block), end = pattern.diagonal(block);
      const double* w = self.values_ + pattern.value_offset(begin);
      double* v = first_v;
      Seen* seen = all.data();
      for (std::int64_t k = begin; k < end; ++k, ++seen) {
        const int row = pattern.row(k), rows = seen_dim(pattern.block_dim(row));
        *seen = {shares.number[row], rows, w, v};
        scale(v, w, inverse, rows, depth);
        double* const target = copy + shares.b_place[seen->number];
        const int ld = leading_dim(rows);
        subtract_b(target, v, b, rows, depth);
        w += rows * depth;
        v += ld * depth;
      }
      subtract_pairs(shares, copy, all.data(), seen, depth);
      if (stop.after(100.0 + 20.0 * static_cast<double>((end - begin) * (end - begin)))) break;
    }
    return std::numeric_limits<int>::max();
  }

  // Block columns begin .. end of S and blocks of b_s from the copies.
  static void add_copies(SchurComplement& self, int begin, int end) {
    Shares& shares = *self.shares_;
    const BlockPattern& pattern = *self.pattern_;
    const BlockPattern& reduced = *self.reduced_pattern_;
    for (int col = begin; col < end; ++col) {
      const int cols = pattern.block_dim(col), number = shares.number[col];
      double* const b = self.reduced_b_.data() + pattern.offset(col);
      std::copy_n(self.b_ + pattern.offset(col), cols, b);
      for (int share = 0; number >= 0 && share < shares.num; ++share) {
        const double* const source = shares.copy(share) + shares.b_place[number];
        for (int i = 0; i < cols; ++i) b[i] += source[i];
      }
      std::int64_t own = pattern.column_begin(col);
      for (std::int64_t k = reduced.column_begin(col); k < reduced.column_end(col); ++k) {
        const int row = reduced.row(k), rows = reduced.block_dim(row);
        double* const target = self.reduced_values_.data() + reduced.value_offset(k);
        if (own < pattern.column_end(col) && pattern.row(own) == row) {
          std::copy_n(self.values_ + pattern.value_offset(own++), rows * cols, target);
        } else {
          std::fill_n(target, rows * cols, 0.0);
        }
        if (number < 0 || shares.number[row] < 0) continue;
        const std::int32_t place = shares.place[shares.number[row] * shares.num_seen + number];
        for (int share = 0; share < shares.num; ++share)
          add_block(target, shares.copy(share) + place, seen_dim(rows), seen_dim(cols));
      }
      if (self.damping_ == nullptr) continue;
      double* const diagonal = self.reduced_values_.data() + reduced.value_offset(reduced.diagonal(col));
      for (int i = 0; i < cols; ++i) diagonal[i * cols + i] += self.damping_[pattern.offset(col) + i];
    }
  }

  static constexpr int kFlat = KeptDim * EliminatedDim;  // numbers of W, 0: not known

  // x_kept of all seen blocks, as often as W has columns, so that H_lp x is one sum over the numbers of W.
  static void repeat(SchurComplement& self, const double* x) {
    Shares& shares = *self.shares_;
    if constexpr (kFlat > 0) {
      shares.repeated.require(static_cast<std::int64_t>(shares.num_seen) * padded(kFlat));
      for (int row = 0; row < self.num_kept_; ++row) {
        if (shares.number[row] < 0) continue;
        double* target = shares.repeated.data() + shares.number[row] * padded(kFlat);
        for (int p = 0; p < EliminatedDim; ++p, target += KeptDim)
          std::copy_n(x + self.pattern_->offset(row), KeptDim, target);
      }
    }
  }

  // x_l = H_ll^-1 (b_l - H_lp x_kept) of the landmarks of a share.
  static void back_substitute(SchurComplement& self, int share, const double* x_kept, double* x) {
    const Shares& shares = *self.shares_;
    const BlockPattern& pattern = *self.pattern_;
    std::vector<double> sums(static_cast<std::size_t>(std::max(kFlat, self.max_eliminated_dim_)));
    double* const sum = sums.data();
    for (int block = shares.begin[share]; block < shares.begin[share + 1]; ++block) {
      const int dim = eliminated_dim(pattern, block);
      const std::int64_t begin = pattern.column_begin(block), end = pattern.diagonal(block);
      const double* w = self.values_ + pattern.value_offset(begin);
      std::fill(sums.begin(), sums.end(), 0.0);
      if constexpr (kFlat > 0) {
        const std::int32_t* const rows = pattern.row_idx().data();
        const auto repeated = [&](std::int64_t k) {
          return shares.repeated.data() + shares.number[rows[k]] * padded(kFlat);
        };
        sum_products<kFlat>(sum, w, end - begin, [&](std::int64_t k) { return repeated(begin + k); });
        for (int p = 0; p < EliminatedDim; ++p) {
          double total = 0.0;
          for (int i = 0; i < KeptDim; ++i) total += sum[p * KeptDim + i];
          sum[p] = total;
        }
      } else {
        for (std::int64_t k = begin; k < end; ++k) {
          const int row = pattern.row(k), rows = seen_dim(pattern.block_dim(row));
          add_transposed_times(sum, w, x_kept + pattern.offset(row), rows, dim, 1.0);
          w += rows * dim;
        }
      }
      double* const target = x + pattern.offset(block);
      std::copy_n(self.scaled_b(block), dim, target);
      add_times(target, self.inverse(block), sum, dim, dim, -1.0);
    }
  }

  static void add_block(double* target, const double* source, int rows, int cols) {
    const int ld = leading_dim(rows);
    for (int j = 0; j < cols; ++j)
      for (int i = 0; i < rows; ++i) target[j * rows + i] += source[j * ld + i];
  }
};

}  // namespace graphopt
