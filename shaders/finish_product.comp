#version 450
// The end of a matrix-free product over kept rows.
//   MODE 0: y += D x (where DAMPED), and dots[g] = the part of x' y of workgroup g
//   MODE 1: y = base - y
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint MODE = 0;
layout(constant_id = 2) const uint DAMPED = 0;
layout(constant_id = 3) const uint STOPPABLE = 0;
PARAMETERS(uint num_rows; uint num_groups; uint parity;)
INPUT(0, real, x)
INPUT(1, real, damping)
INPUT(2, real, base)
INOUT(3, real, y)              // (num_rows,)
OUTPUT(4, accumulator, dots)   // (num_groups,)
INPUT(5, uint, status)

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.parity] != 0) return;
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    if (MODE == 0) {
      const real xi = x.at[i];
      real yi = y.at[i];
      if (DAMPED != 0) {
        yi += damping.at[i] * xi;
        y.at[i] = yi;
      }
      dot = add_product(dot, xi, yi);
    } else {
      y.at[i] = base.at[i] - y.at[i];
    }
  }
  if (MODE == 0) {
    dot = workgroup_sum(dot);
    if (LANE == 0) dots.at[WORKGROUP] = dot;
  }
}
