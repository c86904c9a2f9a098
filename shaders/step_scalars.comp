#version 450
// Per workgroup the part of dx' (D dx + b), the gain that the damped model predicts, and the largest |dx_i|.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "damping.glsl"
#include "reduce.glsl"
#include "extremes.glsl"
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, real, dx)
INPUT(1, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
INPUT(2, real, b)
OUTPUT(3, accumulator, partial)  // (num_groups, 2)

void main() {
  accumulator gain = sum_zero();
  real largest = ZERO;
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const real x = dx.at[i];
    gain = add_product(gain, x, damping_of(i) * x + b.at[i]);
    largest = larger(largest, abs(x));
  }
  gain = workgroup_sum(gain);
  largest = workgroup_largest(largest);
  if (LANE == 0) {
    partial.at[2 * WORKGROUP] = gain;
    partial.at[2 * WORKGROUP + 1] = sum_of(largest);
  }
}
