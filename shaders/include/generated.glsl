// What generated kernels include after common.glsl: the type of estimates and residuals, and buffers of it.
//
//   GRAPHOPT_TWO_FLOAT  wide = two floats, for devices without float64; else wide = float64
#ifndef GRAPHOPT_GENERATED_GLSL
#define GRAPHOPT_GENERATED_GLSL

#define FLOAT_INFINITY uintBitsToFloat(0x7f800000u)
#define FLOAT_NAN uintBitsToFloat(0x7fc00000u)

#define real4 vec4  // of narrow copies

#if defined(GRAPHOPT_TWO_FLOAT)
#include "two_float.glsl"
#else
#define DOUBLE_INFINITY packDouble2x32(uvec2(0u, 0x7ff00000u))
#define DOUBLE_NAN packDouble2x32(uvec2(0u, 0x7ff80000u))
#define wide double
#define wide2 dvec2
#define WIDE_ZERO 0.0lf
real to_real(wide x) { return real(x); }
wide to_wide(real x) { return wide(x); }
wide wide_sum(wide x, wide y) { return x + y; }
#endif

// Records that start at multiples of 16 bytes, read 16 bytes at a time.
#if defined(GRAPHOPT_ADDRESS)
#define RECORDS(slot, type, name)                                                                                   \
  layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer name##_block { type at[]; }; \
  name##_block name = name##_block(ADDRESS(slot));
#else
#define RECORDS(slot, type, name) INPUT(slot, type, name)
#endif
#define FAR_RECORDS(slot, type, name) GRAPHOPT_FAR(restrict readonly, slot, type, 4, 16, name)
#define INPUT_OUTPUT_LARGE(slot, name) GRAPHOPT_LARGE(restrict, slot, name)

// Entry k of edge e in an array of num entries per edge, in blocks of 64 edges.
uint blocked(uint e, uint num) { return (e >> 6) * num * 64 + (e & 63); }
#define BLOCKED(name, e, k, num) AT(name, blocked(e, num), (k) * 64)

#endif
