#version 450
// Per workgroup the largest |H_ii| and |b_i|: what algorithms ask of a linearisation. WRITES: and diagonal[FIRST + i] = H_ii.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "extremes.glsl"
layout(constant_id = 2) const uint WRITES = 1;
layout(constant_id = 3) const uint FIRST = 0;
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, uint, places)            // see diagonal_places.glsl
LARGE_INPUT(1, values)
INPUT(2, real, b)
OUTPUT(3, real, diagonal)         // where it is written
OUTPUT(4, accumulator, partial)   // (num_groups, 2)
#include "diagonal_places.glsl"

void main() {
  real largest = ZERO, gradient = ZERO;
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const uvec2 place = place_of(i);
    const real h = AT(values, place.x, place.y);
    if (WRITES != 0) diagonal.at[FIRST + i] = h;
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
