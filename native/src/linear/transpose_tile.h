// Transposition of a square of numbers in registers.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphopt {

// rows[i][j] <- rows[j][i], Vec: a vector of as many doubles as there are rows.
template <class Vec>
inline void transpose_tile(Vec* rows) {
  constexpr int size = sizeof(Vec) / sizeof(double);
#if defined(__AVX512F__)
  static_assert(size == 8);
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
  static_assert(size == 4);
  __m256d* r = reinterpret_cast<__m256d*>(rows);
  const __m256d t0 = _mm256_unpacklo_pd(r[0], r[1]), t1 = _mm256_unpackhi_pd(r[0], r[1]);
  const __m256d t2 = _mm256_unpacklo_pd(r[2], r[3]), t3 = _mm256_unpackhi_pd(r[2], r[3]);
  r[0] = _mm256_permute2f128_pd(t0, t2, 0x20);
  r[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
  r[2] = _mm256_permute2f128_pd(t0, t2, 0x31);
  r[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
#else
  for (int i = 0; i < size; ++i) {
    for (int j = i + 1; j < size; ++j) {
      const double above = rows[i][j];
      rows[i][j] = rows[j][i];
      rows[j][i] = above;
    }
  }
#endif
}

}  // namespace graphopt
