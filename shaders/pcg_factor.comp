#version 450
// After s = inv(M) r by a factorization: dots[g] = the part of r' s of workgroup g; at the start also d = s.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "reduce.glsl"
layout(constant_id = 1) const uint STARTS = 0;
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, real, r)
INPUT(1, real, s)
OUTPUT(2, real, d)
OUTPUT(3, accumulator, dots)

void main() {
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const real own = s.at[i];
    if (STARTS != 0) d.at[i] = own;
    dot = add_product(dot, r.at[i], own);
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots.at[WORKGROUP] = dot;
}
