#version 450
// After u = inv(M) r by a factorization: dots_rs[g] = the part of r' u of workgroup g; where ENDS, the end of the
// iteration, too. Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint ENDS = 0;
PARAMETERS(uint num_rows; uint num_groups; uint parity;)
INPUT(0, real, r)
INPUT(1, real, u)
GRAPHOPT_BUFFER(restrict coherent, 2, accumulator, dots_rs)
INOUT(3, real, scalars)
INOUT(4, uint, status)
#include "pcg_end.glsl"

void main() {
  if (ENDS != 0 && status.at[STOPPED + push.parity] != 0) {
    pcg_hand_on();
    return;
  }
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    dot = add_product(dot, r.at[i], u.at[i]);
  }
  if (ENDS != 0) {
    pcg_end_iteration(dot, scalars.at[GAIN], true);
    return;
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots_rs.at[WORKGROUP] = dot;
}
