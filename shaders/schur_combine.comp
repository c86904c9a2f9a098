#version 450
// Blocks of the Schur complement whose queue was split: S_ij = H_ij + D_ij - sum of the parts, in order.
// One invocation per element, of blocks with ROWS x COLS, or with their own dimensions where ROWS = COLS = 0.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
PARAMETERS(uint first_block; uint num_blocks;)
INPUT(0, uint, blocks)         // (num_blocks, 6): first partial, number of parts, destination, H block, damping,
                               // rows + 256 * cols
INPUT(1, accumulator, partial)
LARGE_INPUT(2, values)
INPUT(3, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
LARGE_OUTPUT(4, schur)

const uint AREA = ROWS != 0 ? ROWS * COLS : MAX_DIM * MAX_DIM;

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num_blocks * AREA) return;
  const uint entry = 6 * (push.first_block + i / AREA), element = i % AREA;
  uint rows = ROWS, area = AREA;
  if (ROWS == 0) {
    rows = blocks.at[entry + 5] & 255;
    area = rows * (blocks.at[entry + 5] >> 8);
  }
  if (element >= area) return;
  accumulator s = sum_zero();
  for (uint k = 0; k < blocks.at[entry + 1]; ++k) s = merge(s, partial.at[blocks.at[entry] + k * area + element]);
  const uint block = blocks.at[entry + 3], diagonal = blocks.at[entry + 4];
  real h = block == NOTHING ? ZERO : AT(values, block, element);
  if (diagonal != NOTHING && element % rows == element / rows) h += damping_of(diagonal + element % rows);
  AT(schur, blocks.at[entry + 2], element) = h - value(s);
}
