#version 450
// The other half of symmetric_product: y_i = sum of the vectors of block row i + D x, and dots[g] = the part of
// x' y of workgroup g. A workgroup takes a block row at a time, WORKGROUP_SIZE / DIM vectors side by side, which are
// merged in a fixed order. Where FOLLOWS, inside the conjugate gradients: d = x + beta d, y = sum + D x + beta y, and
// the parts of d' y.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 9
#include "common.glsl"
#include "damping.glsl"
#include "pcg_state.glsl"
#include "pcg_recurrence.glsl"
layout(constant_id = 1) const uint DIM = 6;
layout(constant_id = 2) const uint DAMPED = 0;
layout(constant_id = 3) const uint STOPPABLE = 0;
layout(constant_id = 4) const uint FOLLOWS = 0;
PARAMETERS(uint num_rows; uint num_groups; uint ping_pong;)
INPUT(0, uint, rows)             // (num_rows + 1,): first vector of each block row
INPUT(1, accumulator, partial)   // (num_vectors, DIM)
INPUT(2, real, x)                // (num_rows * DIM or more,)
INPUT(3, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
INOUT(4, real, y)
OUTPUT(5, accumulator, dots)     // (num_groups,)
INPUT(6, uint, status)
INOUT(7, real, d)
INPUT(8, real, scalars)

const uint VECTORS = WORKGROUP_SIZE / DIM;
const uint AHEAD = 8;
shared accumulator scratch[WORKGROUP_SIZE];

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const uint local = LANE / DIM, lane = LANE % DIM;
  const real beta = FOLLOWS != 0 ? scalars.at[BETA] : ZERO;
  accumulator dot = sum_zero();  // of entry LANE of the rows, where LANE < DIM
  for (uint row = WORKGROUP; row < push.num_rows; row += push.num_groups) {
    const uint end = rows.at[row + 1];
    accumulator s = sum_zero();
    if (local < VECTORS) {
      for (uint k = rows.at[row] + local; k < end; k += AHEAD * VECTORS) {
        accumulator held[AHEAD];  // in flight together
        [[unroll]] for (uint n = 0; n < AHEAD; ++n) held[n] = partial.at[min(k + n * VECTORS, end - 1) * DIM + lane];
        [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
          if (k + n * VECTORS < end) s = merge(s, held[n]);
        }
      }
    }
    barrier();
    scratch[LANE] = s;
    for (uint n = VECTORS; n > 1; n = (n + 1) / 2) {  // n sums are left; halve them
      const uint half_n = (n + 1) / 2;
      barrier();
      if (local + half_n < n) scratch[LANE] = merge(scratch[LANE], scratch[LANE + half_n * DIM]);
    }
    if (LANE < DIM) {
      const uint i = row * DIM + LANE;
      const real xi = x.at[i];
      s = scratch[LANE];
      if (DAMPED != 0) s = add_product(s, damping_of(i), xi);
      PCG_END_ROW(i, xi, value(s), y, y)
    }
  }
  barrier();
  scratch[LANE] = dot;
  barrier();
  if (LANE != 0) return;
  for (uint k = 1; k < DIM; ++k) dot = merge(dot, scratch[k]);
  dots.at[WORKGROUP] = dot;
}
