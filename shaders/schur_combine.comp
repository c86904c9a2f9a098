#version 450
// Blocks of the Schur complement whose queue was split: S_ij = H_ij + D_ij - sum of the parts, in order.
// One invocation per element. Grid: ceil(num_blocks * AREA / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
PARAMETERS(uint first_block; uint num_blocks;)
INPUT(0, uint, blocks)         // (num_blocks, 5): first partial, number of parts, destination, H block, damping
INPUT(1, accumulator, partial)
INPUT(2, real, values)
INPUT(3, real, damping)
OUTPUT(4, real, schur)

const uint AREA = ROWS * COLS;

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num_blocks * AREA) return;
  const uint entry = 5 * (push.first_block + i / AREA), element = i % AREA;
  accumulator s = sum_zero();
  for (uint k = 0; k < blocks.at[entry + 1]; ++k) s = merge(s, partial.at[blocks.at[entry] + k * AREA + element]);
  const uint block = blocks.at[entry + 3], diagonal = blocks.at[entry + 4];
  real h = block == NOTHING ? ZERO : values.at[block + element];
  if (diagonal != NOTHING && element % ROWS == element / ROWS) h += damping.at[diagonal + element % ROWS];
  schur.at[blocks.at[entry + 2] + element] = h - value(s);
}
