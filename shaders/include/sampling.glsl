// Samples of images, as graphopt/symbolic/sampling.py defines them, for wide numbers and, in mixed precision, for
// float32:
//
//   sample_bilinear(plane, u, v, value, by_u, by_v)    the last three are results; sample_bicubic likewise
//
// The includer declares the buffers before, and includes generated.glsl:
//
//   planes  uvec4 by handle: first pixel, width (0: no such plane), height; w of plane 0: how many there are
//   pixels  float
#ifndef GRAPHOPT_SAMPLING_GLSL
#define GRAPHOPT_SAMPLING_GLSL

float sampled_pixel(uvec4 plane, int row, int column) {
  const int i = clamp(row, 0, int(plane.z) - 1), j = clamp(column, 0, int(plane.y) - 1);
  return pixels.at[plane.x + uint(i) * plane.y + uint(j)];
}

#if defined(GRAPHOPT_TWO_FLOAT)
#define number wide
#define n_number(x) wide(float(x), 0.0)
#define n_float(x) to_real(x)
#define n_floor wide_floor
#define n_sub wide_sub
#define n_mul wide_mul
#define n_fma(x, y, z) wide_add(wide_mul(x, y), z)
#define n_less wide_lt
#define n_less_equal wide_le
#define n_equal wide_eq
#include "sampling_formulas.glsl"
#undef number
#undef n_number
#undef n_float
#undef n_floor
#undef n_sub
#undef n_mul
#undef n_fma
#undef n_less
#undef n_less_equal
#undef n_equal
#endif

#define n_number(x) number(x)
#define n_float(x) float(x)
#define n_floor(x) floor(x)
#define n_sub(x, y) ((x) - (y))
#define n_mul(x, y) ((x) * (y))
#define n_fma(x, y, z) fma(x, y, z)
#define n_less(x, y) ((x) < (y))
#define n_less_equal(x, y) ((x) <= (y))
#define n_equal(x, y) ((x) == (y))
#if !defined(GRAPHOPT_TWO_FLOAT)
#define number double
#include "sampling_formulas.glsl"
#undef number
#endif
#if defined(GRAPHOPT_MIXED)
#define number float
#include "sampling_formulas.glsl"
#undef number
#endif
#undef n_number
#undef n_float
#undef n_floor
#undef n_sub
#undef n_mul
#undef n_fma
#undef n_less
#undef n_less_equal
#undef n_equal

#endif
