// Products and inverses of small dense column-major blocks, with dimensions known at compile time (or 0:
// given at run time).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace graphopt {

template <int Rows>
constexpr int piece_size() {
  return Rows >= 8 ? 8 : Rows >= 4 ? 4 : Rows >= 2 ? 2 : 1;
}

enum class Update { kSet, kSubtract };

// c := a b' or c -= a b', c (Rows x cols), a (Rows x Depth), b (cols x Depth); leading dimensions lc, la, lb.
template <Update Kind, int Rows, int Depth>
inline __attribute__((always_inline)) void outer_pieces(double* c, int lc, const double* a, int la,
                                                        const double* b, int lb, int cols) {
  constexpr int N = piece_size<Rows>();
  typedef double Piece __attribute__((vector_size(N * sizeof(double)), aligned(8), may_alias));
  Piece column[Depth];
  for (int p = 0; p < Depth; ++p) column[p] = *reinterpret_cast<const Piece*>(a + p * la);
  for (int j = 0; j < cols; ++j) {
    Piece& target = *reinterpret_cast<Piece*>(c + j * lc);
    Piece sum = column[0] * b[j];
    for (int p = 1; p < Depth; ++p) sum += column[p] * b[p * lb + j];
    if (Kind == Update::kSet) {
      target = sum;
    } else {
      target -= sum;
    }
  }
  if constexpr (Rows > N) outer_pieces<Kind, Rows - N, Depth>(c + N, lc, a + N, la, b, lb, cols);
}

// c := a b' or c -= a b', c (rows x cols, leading dimension lc), a (rows x depth), b (cols x depth).
template <Update Kind, int Rows, int Depth>
inline __attribute__((always_inline)) void outer_product(double* c, int lc, const double* a, const double* b,
                                                         int rows, int cols, int depth) {
  if constexpr (Rows > 0 && Depth > 0) {
    outer_pieces<Kind, Rows, Depth>(c, lc, a, Rows, b, cols, cols);
  } else {
    for (int j = 0; j < cols; ++j) {
      if (Kind == Update::kSet) std::fill(c + j * lc, c + j * lc + rows, 0.0);
      for (int p = 0; p < depth; ++p) {
        const double factor = Kind == Update::kSet ? b[p * cols + j] : -b[p * cols + j];
        for (int i = 0; i < rows; ++i) c[j * lc + i] += a[p * rows + i] * factor;
      }
    }
  }
}

// c -= a b', c (Rows x Cols, leading dimension lc), a (Rows x Depth, leading dimension lc), b (Cols x Depth).
template <int Rows, int Cols, int Depth>
inline __attribute__((always_inline)) void subtract_pieces(double* c, int lc, const double* a,
                                                           const double* b) {
  constexpr int N = piece_size<Rows>();
  typedef double Piece __attribute__((vector_size(N * sizeof(double)), aligned(8), may_alias));
  Piece column[Depth];
  for (int p = 0; p < Depth; ++p) column[p] = *reinterpret_cast<const Piece*>(a + p * lc);
#pragma GCC unroll 9
  for (int j = 0; j < Cols; ++j) {
    Piece& target = *reinterpret_cast<Piece*>(c + j * lc);
    Piece sum = target;
    for (int p = 0; p < Depth; ++p) sum -= column[p] * b[p * Cols + j];
    target = sum;
  }
  if constexpr (Rows > N) subtract_pieces<Rows - N, Cols, Depth>(c + N, lc, a + N, b);
}

// sum[i] := sum over k < count of a[k * Length + i] * other(k)[i].
template <int Length, int Stride = Length, class Other>
inline __attribute__((always_inline)) void sum_products(double* sum, const double* a, std::int64_t count,
                                                        Other other) {
  constexpr int N = piece_size<Length>(), kPieces = Length / N, kRest = Length - kPieces * N;
  typedef double Piece __attribute__((vector_size(N * sizeof(double)), aligned(8), may_alias));
  Piece total[kPieces] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    const Piece* const left = reinterpret_cast<const Piece*>(a + k * Stride);
    const Piece* const right = reinterpret_cast<const Piece*>(other(k));
    for (int i = 0; i < kPieces; ++i) total[i] += left[i] * right[i];
  }
  for (int i = 0; i < kPieces; ++i) reinterpret_cast<Piece*>(sum)[i] = total[i];
  if constexpr (kRest > 0) {
    constexpr int kDone = kPieces * N;
    sum_products<kRest, Stride>(sum + kDone, a + kDone, count,
                                [&](std::int64_t k) { return other(k) + kDone; });
  }
}

// y += factor * a x, a (rows x cols).
inline void add_times(double* y, const double* a, const double* x, int rows, int cols, double factor) {
  for (int p = 0; p < cols; ++p) {
    const double scale = factor * x[p];
    for (int i = 0; i < rows; ++i) y[i] += a[p * rows + i] * scale;
  }
}

// y += factor * a' x, a (rows x cols).
inline void add_transposed_times(double* y, const double* a, const double* x, int rows, int cols,
                                 double factor) {
  for (int p = 0; p < cols; ++p) {
    double sum = 0.0;
    for (int i = 0; i < rows; ++i) sum += a[p * rows + i] * x[i];
    y[p] += factor * sum;
  }
}

constexpr int kInvertLanes = 8;

// The same as invert_spd for so many matrices at once: number k of lane l of a, damping (null: none) and
// inverse at [k * kInvertLanes + l]. Bit l of the result: lane l is positive definite.
template <int Dim>
inline unsigned invert_spd_lanes(const double* a, const double* damping, double* inverse) {
  constexpr int L = kInvertLanes;
  double lower[Dim * Dim * L];
  bool good[L];
  for (int l = 0; l < L; ++l) good[l] = true;
  for (int j = 0; j < Dim; ++j) {
    double scale[L];
    for (int l = 0; l < L; ++l) {
      const double diagonal =
          damping != nullptr ? a[(j * Dim + j) * L + l] + damping[j * L + l] : a[(j * Dim + j) * L + l];
      double pivot = diagonal;
      for (int p = 0; p < j; ++p) pivot -= lower[(p * Dim + j) * L + l] * lower[(p * Dim + j) * L + l];
      good[l] &= (pivot > std::numeric_limits<double>::epsilon() * diagonal) &
                 (pivot <= std::numeric_limits<double>::max());
      scale[l] = 1.0 / std::sqrt(pivot);
      lower[(j * Dim + j) * L + l] = scale[l];  // stored inverted
    }
    for (int i = j + 1; i < Dim; ++i)
      for (int l = 0; l < L; ++l) {
        double value = a[(j * Dim + i) * L + l];
        for (int p = 0; p < j; ++p) value -= lower[(p * Dim + i) * L + l] * lower[(p * Dim + j) * L + l];
        lower[(j * Dim + i) * L + l] = value * scale[l];
      }
  }
  for (int j = 0; j < Dim; ++j)  // lower := lower^-1, column by column
    for (int i = j + 1; i < Dim; ++i)
      for (int l = 0; l < L; ++l) {
        double sum = 0.0;
        for (int p = j; p < i; ++p) sum += lower[(p * Dim + i) * L + l] * lower[(j * Dim + p) * L + l];
        lower[(j * Dim + i) * L + l] = -sum * lower[(i * Dim + i) * L + l];
      }
  for (int j = 0; j < Dim; ++j)
    for (int i = j; i < Dim; ++i)
      for (int l = 0; l < L; ++l) {
        double sum = 0.0;
        for (int p = i; p < Dim; ++p) sum += lower[(i * Dim + p) * L + l] * lower[(j * Dim + p) * L + l];
        inverse[(j * Dim + i) * L + l] = inverse[(i * Dim + j) * L + l] = sum;
      }
  unsigned result = 0;
  for (int l = 0; l < L; ++l) result |= static_cast<unsigned>(good[l]) << l;
  return result;
}

// inverse := (a + diag(damping))^-1, symmetric positive definite, dim x dim; lower (dim x dim) is scratch.
// False if a pivot is not finite or not larger than epsilon times its diagonal entry.
template <int Dim>
inline bool invert_spd(const double* a, const double* damping, double* inverse, double* lower, int dim) {
  const int n = Dim > 0 ? Dim : dim;
  for (int j = 0; j < n; ++j) {
    const double diagonal = a[j * n + j] + (damping != nullptr ? damping[j] : 0.0);
    double pivot = diagonal;
    for (int p = 0; p < j; ++p) pivot -= lower[p * n + j] * lower[p * n + j];
    if (!(pivot > std::numeric_limits<double>::epsilon() * diagonal) || !std::isfinite(pivot)) return false;
    const double scale = 1.0 / std::sqrt(pivot);
    lower[j * n + j] = scale;  // stored inverted
    for (int i = j + 1; i < n; ++i) {
      double value = a[j * n + i];
      for (int p = 0; p < j; ++p) value -= lower[p * n + i] * lower[p * n + j];
      lower[j * n + i] = value * scale;
    }
  }
  for (int j = 0; j < n; ++j) {  // lower := lower^-1, column by column
    for (int i = j + 1; i < n; ++i) {
      double sum = 0.0;
      for (int p = j; p < i; ++p) sum += lower[p * n + i] * lower[j * n + p];
      lower[j * n + i] = -sum * lower[i * n + i];
    }
  }
  for (int j = 0; j < n; ++j) {
    for (int i = j; i < n; ++i) {
      double sum = 0.0;
      for (int p = i; p < n; ++p) sum += lower[i * n + p] * lower[j * n + p];
      inverse[j * n + i] = inverse[i * n + j] = sum;
    }
  }
  return true;
}

}  // namespace graphopt
