#version 450
// The end of a sparse product: y_i from the partial sums of the chunks of its block row.
//   MODE 0: y = sum + D x   (D: the damping, where DAMPED), and dots[g] = the part of x' y of workgroup g
//           where FOLLOWS, inside the conjugate gradients: d = x + beta d, y = sum + D x + beta y, parts of d' y
//   MODE 1: y = base - sum
// Invocations stride over the scalar rows; the grid has at most WORKGROUP_SIZE workgroups.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#include "common.glsl"
#include "damping.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
#include "pcg_recurrence.glsl"
layout(constant_id = 1) const uint MODE = 0;
layout(constant_id = 2) const uint DAMPED = 0;
layout(constant_id = 3) const uint STOPPABLE = 0;
layout(constant_id = 4) const uint FOLLOWS = 0;
PARAMETERS(uint num_rows; uint num_groups; uint ping_pong;)
INPUT(0, uint, rows)             // (num_rows, 3): first partial, number of chunks, distance between chunks
INPUT(1, accumulator, partial)
INPUT(2, real, x)                // (num_rows or more,)
INPUT(3, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
INPUT(4, real, base)
INOUT(5, real, y)               // (num_rows,)
OUTPUT(6, accumulator, dots)     // (num_groups,)
INPUT(7, uint, status)
INOUT(8, real, d)
INPUT(9, real, scalars)

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const real beta = FOLLOWS != 0 ? scalars.at[BETA] : ZERO;
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const uint first = rows.at[3 * i], count = rows.at[3 * i + 1], stride = rows.at[3 * i + 2];
    accumulator s = sum_zero();
    for (uint k = 0; k < count; ++k) s = merge(s, partial.at[first + k * stride]);
    if (MODE == 0) {
      const real xi = x.at[i];
      if (DAMPED != 0) s = add_product(s, damping_of(i), xi);
      PCG_END_ROW(i, xi, value(s), y, y)
    } else {
      y.at[i] = base.at[i] - value(s);
    }
  }
  if (MODE == 0) {
    dot = workgroup_sum(dot);
    if (LANE == 0) dots.at[WORKGROUP] = dot;
  }
}
