#version 450
// inverse_k = (A_k + D_k)^-1 for symmetric positive definite diagonal blocks A_k of dimension DIM, any DIM.
//   A + D = L L'   column by column;   X = L^-1 by forward substitution, one column per invocation;   A^-1 = X' X
// A team of DIM invocations per block, floor(WORKGROUP_SIZE / DIM) blocks per workgroup, all in shared memory.
// A pivot that is not positive (or not a number) sets status[INDEFINITE].
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 3;
layout(constant_id = 2) const uint DAMPED = 1;  // 0: D = 0
PARAMETERS(uint first_block; uint num_blocks;)
INPUT(0, uint, blocks)      // (num_blocks_of_all_dims, 3): offsets in values, in damping, in inverse
LARGE_INPUT(1, values)      // column-major blocks
INPUT(2, real, damping)     // (dim,)
OUTPUT(3, real, inverse)    // column-major blocks, both triangles
INOUT(4, uint, status)

const uint TEAMS = WORKGROUP_SIZE / DIM;
const uint AREA = DIM * DIM;
shared real factor[TEAMS * AREA];   // L, column-major
shared real inverted[TEAMS * AREA];  // X = L^-1, column-major

void main() {
  const uint team = LANE / DIM, row = LANE % DIM;
  const uint block = WORKGROUP * TEAMS + team;
  const bool busy = team < TEAMS && block < push.num_blocks;
  const uint base = team * AREA;
  uint target = 0;
  if (busy) {
    const uint entry = 3 * (push.first_block + block);
    const uint source = blocks.at[entry];
    target = blocks.at[entry + 2];
    for (uint c = 0; c < DIM; ++c) factor[base + row + DIM * c] = AT(values, source, row + DIM * c);
    if (DAMPED != 0) factor[base + row + DIM * row] += damping.at[blocks.at[entry + 1] + row];
  }
  for (uint k = 0; k < DIM; ++k) {
    barrier();
    real pivot = ONE;
    if (busy) {
      pivot = factor[base + k + DIM * k];
      if (!(pivot > ZERO)) status.at[INDEFINITE] = 1;
      pivot = sqrt(pivot);
    }
    barrier();
    if (busy && row == k) factor[base + k + DIM * k] = pivot;
    if (busy && row > k) factor[base + row + DIM * k] /= pivot;
    barrier();
    if (busy && row > k) {
      const real left = factor[base + row + DIM * k];
      for (uint c = k + 1; c <= row; ++c) factor[base + row + DIM * c] -= left * factor[base + c + DIM * k];
    }
  }
  barrier();
  if (busy) {  // column `row` of X
    for (uint i = 0; i < row; ++i) inverted[base + i + DIM * row] = ZERO;
    for (uint i = row; i < DIM; ++i) {
      real rest = i == row ? ONE : ZERO;
      for (uint k = row; k < i; ++k) rest -= factor[base + i + DIM * k] * inverted[base + k + DIM * row];
      inverted[base + i + DIM * row] = rest / factor[base + i + DIM * i];
    }
  }
  barrier();
  if (busy) {
    for (uint c = 0; c < DIM; ++c) {
      accumulator s = sum_zero();
      for (uint k = max(row, c); k < DIM; ++k) {
        s = add_product(s, inverted[base + k + DIM * row], inverted[base + k + DIM * c]);
      }
      inverse.at[target + row + DIM * c] = value(s);
    }
  }
}
