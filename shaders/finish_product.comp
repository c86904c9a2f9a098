#version 450
// The end of a matrix-free product: w = y + B x + D x over the first rows, B: H's diagonal blocks (where BLOCKS), D: the
// damping (where DAMPED). Then y = w, and dots[g] = the part of x' y of workgroup g; or where FOLLOWS, inside the
// conjugate gradients, d = x + beta d, q = w + beta q and the parts of d' q. Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#include "common.glsl"
#include "damping.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
#include "pcg_recurrence.glsl"
layout(constant_id = 1) const uint DAMPED = 0;
layout(constant_id = 2) const uint BLOCKS = 1;
layout(constant_id = 3) const uint STOPPABLE = 0;
layout(constant_id = 4) const uint FOLLOWS = 0;
PARAMETERS(uint num_rows; uint num_groups; uint ping_pong;)
INPUT(0, uint, rows)           // (num_rows, 3): offset of the row in values, first row of the block, its dimension
LARGE_INPUT(1, values)         // diagonal blocks, both triangles
INPUT(2, real, x)
INPUT(3, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
INOUT(4, real, y)              // (num_rows,)
OUTPUT(5, accumulator, dots)   // (num_groups,)
INPUT(6, uint, status)
INOUT(7, real, d)
INOUT(8, real, q)
INPUT(9, real, scalars)

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const real beta = FOLLOWS != 0 ? scalars.at[BETA] : ZERO;
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const real xi = x.at[i];
    accumulator s = sum_of(y.at[i]);
    if (BLOCKS != 0) {
      const uint start = rows.at[3 * i], first = rows.at[3 * i + 1], dim = rows.at[3 * i + 2];
      for (uint c = 0; c < dim; ++c) s = add_product(s, AT(values, start, dim * c), x.at[first + c]);
    }
    if (DAMPED != 0) s = add_product(s, damping_of(i), xi);
    const real yi = value(s);
    PCG_END_ROW(i, xi, yi, y, q)
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots.at[WORKGROUP] = dot;
}
