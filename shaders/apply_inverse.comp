#version 450
// x_l = H_ll^-1 (base_l - sum_l) for the eliminated blocks of one dimension; where !HAS_BASE base = 0, where !HAS_SUM
// sum = 0. The middle of the matrix-free Schur complement (sum = H_pl' d) and its back-substitution (base = b).
// One invocation per scalar row of these blocks.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 3;
layout(constant_id = 2) const uint HAS_BASE = 0;
layout(constant_id = 3) const uint HAS_SUM = 1;
layout(constant_id = 4) const uint STOPPABLE = 0;
PARAMETERS(uint first_block; uint num_blocks; uint parity;)
INPUT(0, uint, blocks)    // (num, 2): first scalar, offset of the inverse
LARGE_INPUT(1, inverse)   // column-major blocks, both triangles
INPUT(2, real, base)      // (dim,)
INPUT(3, real, sum)       // (dim,)
OUTPUT(4, real, x)        // (dim,)
INPUT(5, uint, status)

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.parity] != 0) return;
  const uint index = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint block = index / DIM, row = index % DIM;
  if (block >= push.num_blocks) return;
  const uint scalar = blocks.at[2 * (push.first_block + block)], at = blocks.at[2 * (push.first_block + block) + 1];
  accumulator s = sum_zero();
  for (uint c = 0; c < DIM; ++c) {
    real v = ZERO;
    if (HAS_BASE != 0) v = base.at[scalar + c];
    if (HAS_SUM != 0) v -= sum.at[scalar + c];
    s = add_product(s, AT(inverse, at, row + DIM * c), v);
  }
  x.at[scalar + row] = value(s);
}
