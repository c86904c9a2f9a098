#version 450
// x_l = H_ll^-1 (base_l - sum_l) for the eliminated blocks of one dimension; where !HAS_BASE base = 0, where !HAS_SUM
// sum = 0. The middle of the matrix-free Schur complement (sum = H_pl' d) and its back-substitution (base = b).
// A team of DIM invocations per block, floor(WORKGROUP_SIZE / DIM) blocks per workgroup.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 3;
layout(constant_id = 2) const uint HAS_BASE = 0;
layout(constant_id = 3) const uint HAS_SUM = 1;
layout(constant_id = 4) const uint STOPPABLE = 0;
PARAMETERS(uint first_block; uint num_blocks; uint ping_pong;)
INPUT(0, uint, blocks)    // (num, 3): -, first scalar, offset of the inverse
#define COLUMNS 3
#include "block_places.glsl"
LARGE_INPUT(1, inverse)   // upper triangles by columns
INPUT(2, real, base)      // (dim,)
GRAPHOPT_BUFFER(readonly, 3, real, sum)  // (dim,); may be x: all of a block is read before any of it is written
GRAPHOPT_BUFFER(, 4, real, x)            // (dim,)
INPUT(5, uint, status)
const uint TEAMS = WORKGROUP_SIZE / DIM;

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const uint block = WORKGROUP * TEAMS + LANE / DIM, row = LANE % DIM;
  const bool busy = LANE < TEAMS * DIM && block < push.num_blocks;
  const uint k = push.first_block + (busy ? block : 0), scalar = block_place(k, 1, DIM);
  accumulator s = sum_zero();
  if (busy) {
    const uint at = block_place(k, 2, DIM * (DIM + 1) / 2);
    for (uint c = 0; c < DIM; ++c) {
      real v = ZERO;
      if (HAS_BASE != 0) v = base.at[scalar + c];
      if (HAS_SUM != 0) v -= sum.at[scalar + c];
      const uint i = min(row, c), j = max(row, c);
      s = add_product(s, AT(inverse, at, i + j * (j + 1) / 2), v);
    }
  }
  barrier();
  if (busy) x.at[scalar + row] = value(s);
}
