// Structure of arrays <-> array of structures, a tile of kVectorLanes x kVectorLanes at a time.
#pragma once

#include <cstdint>

#include "vm/lanes.h"

namespace graphopt::vm {

// rows[i][j] <- rows[j][i]
inline void transpose_tile(Vec* rows) {
#if defined(__AVX512F__)
  __m512d* r = reinterpret_cast<__m512d*>(rows);
  __m512d t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; ++k) {
      u[i + k] = _mm512_shuffle_f64x2(t[i + k], t[i + k + 2], 0x88);
      u[i + k + 2] = _mm512_shuffle_f64x2(t[i + k], t[i + k + 2], 0xdd);
    }
  for (int k = 0; k < 4; ++k) {
    r[k] = _mm512_shuffle_f64x2(u[k], u[k + 4], 0x88);
    r[k + 4] = _mm512_shuffle_f64x2(u[k], u[k + 4], 0xdd);
  }
#elif defined(__AVX__)
  __m256d* r = reinterpret_cast<__m256d*>(rows);
  const __m256d t0 = _mm256_unpacklo_pd(r[0], r[1]), t1 = _mm256_unpackhi_pd(r[0], r[1]);
  const __m256d t2 = _mm256_unpacklo_pd(r[2], r[3]), t3 = _mm256_unpackhi_pd(r[2], r[3]);
  r[0] = _mm256_permute2f128_pd(t0, t2, 0x20);
  r[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
  r[2] = _mm256_permute2f128_pd(t0, t2, 0x31);
  r[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
#else
  const Vec a = rows[0], b = rows[1];
  rows[0] = Vec{a[0], b[0]};
  rows[1] = Vec{a[1], b[1]};
#endif
}

// `lanes` below: how many are wanted, in whole vectors; Width: how many a register of the frame has.

// rows[l * stride + k] = frame[registers[k] * Width + l] for k < count; stride is a multiple of kVectorLanes
// and at least count; what lies between count and stride is overwritten.
template <int Width>
inline void lanes_to_rows(const double* frame, const std::int32_t* registers, int count, double* rows,
                          int stride, int lanes) {
  for (int k = 0; k < count; k += kVectorLanes)
    for (int l = 0; l < lanes; l += kVectorLanes) {
      Vec tile[kVectorLanes];
      for (int i = 0; i < kVectorLanes; ++i) {
        const std::int32_t r = registers[k + i < count ? k + i : count - 1];
        tile[i] = load(frame + static_cast<std::size_t>(r) * Width + l);
      }
      transpose_tile(tile);
      for (int i = 0; i < kVectorLanes; ++i) store(rows + (l + i) * stride + k, tile[i]);
    }
}

// frame[registers[k] * Width + l] = base[rows[l] * columns + k]; register -1: not wanted.
template <int Width>
inline void rows_to_lanes(const double* base, int columns, const std::int32_t* rows,
                          const std::int32_t* registers, double* frame, int lanes) {
  for (int k = 0; k < columns; k += kVectorLanes) {
    const int count = columns - k < kVectorLanes ? columns - k : kVectorLanes;
    for (int l = 0; l < lanes; l += kVectorLanes) {
      Vec tile[kVectorLanes];
      for (int i = 0; i < kVectorLanes; ++i)
        tile[i] = load_partial(base + static_cast<std::int64_t>(rows[l + i]) * columns + k, count);
      transpose_tile(tile);
      for (int i = 0; i < count; ++i)
        if (registers[k + i] >= 0)
          store(frame + static_cast<std::size_t>(registers[k + i]) * Width + l, tile[i]);
    }
  }
}

// The same where all lanes take the same row.
template <int Width>
inline void row_to_lanes(const double* row, int columns, const std::int32_t* registers, double* frame,
                         int lanes) {
  for (int k = 0; k < columns; ++k) {
    if (registers[k] < 0) continue;
    double* out = frame + static_cast<std::size_t>(registers[k]) * Width;
    for (int l = 0; l < lanes; l += kVectorLanes) store(out + l, broadcast(row[k]));
  }
}

}  // namespace graphopt::vm
