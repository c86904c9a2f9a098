#version 450
// diagonal[i] = H_ii, and per workgroup the largest |H_ii| and |b_i|: what algorithms ask of a linearisation.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "extremes.glsl"
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, uint, places)            // (num_rows,): offset of H_ii in values
LARGE_INPUT(1, values)
INPUT(2, real, b)
OUTPUT(3, real, diagonal)         // (num_rows,)
OUTPUT(4, accumulator, partial)   // (num_groups, 2)

void main() {
  real largest = ZERO, gradient = ZERO;
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const real h = AT(values, places.at[i], 0);
    diagonal.at[i] = h;
    largest = larger(largest, abs(h));
    gradient = larger(gradient, abs(b.at[i]));
  }
  largest = workgroup_largest(largest);
  gradient = workgroup_largest(gradient);
  if (LANE == 0) {
    partial.at[2 * WORKGROUP] = sum_of(largest);
    partial.at[2 * WORKGROUP + 1] = sum_of(gradient);
  }
}
