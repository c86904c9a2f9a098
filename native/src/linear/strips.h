// Dense matrices in strips: the storage of all factors.
//
// A strip is kStrip consecutive rows. It is stored column by column, kStrip doubles each, so that a column of
// a strip is one aligned SIMD vector, and both operands of a rank-k update are read sequentially.
//
//   rectangular  (rows x cols): strip s starts at s * kStrip * cols
//   triangular   (lower, n x n): strip s has columns 0 .. kStrip (s + 1) - 1 and starts at triangle_size(s)
//
// Rows are padded to whole strips; padding rows are zero or unused.
#pragma once

#include <cstdint>

namespace graphopt {

#if defined(__AVX512F__)
constexpr int kStrip = 8;       // doubles per vector
constexpr int kTileStrips = 3;  // strips of a register tile: 24 x 8 of 32 registers
#elif defined(__AVX__)
constexpr int kStrip = 4;
constexpr int kTileStrips = 3;  // 12 x 4 of 16 registers
#else
constexpr int kStrip = 4;  // two 128-bit vectors
constexpr int kTileStrips = 1;
#endif

typedef double Vec __attribute__((vector_size(kStrip * sizeof(double))));

inline Vec* as_vec(double* p) { return reinterpret_cast<Vec*>(p); }
inline const Vec* as_vec(const double* p) { return reinterpret_cast<const Vec*>(p); }

constexpr std::int64_t num_strips(std::int64_t rows) { return (rows + kStrip - 1) / kStrip; }

// Doubles in the first `strips` strips of a triangular matrix.
constexpr std::int64_t triangle_size(std::int64_t strips) {
  return kStrip * kStrip * (strips * (strips + 1) / 2);
}

constexpr std::int64_t rectangle_size(std::int64_t rows, std::int64_t cols) {
  return num_strips(rows) * kStrip * cols;
}

// Offset of (row, 0); column c lies kStrip * c doubles further.
constexpr std::int64_t triangle_row(std::int64_t row) { return triangle_size(row / kStrip) + row % kStrip; }
constexpr std::int64_t rectangle_row(std::int64_t row, std::int64_t cols) {
  return row / kStrip * kStrip * cols + row % kStrip;
}

}  // namespace graphopt
