#version 450
// sums[r] = sum of the num_blocks partial sums of row r, in their order. One invocation per row.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint num_rows; uint num_blocks;)
INPUT(0, real, partial)  // (num_rows, num_blocks)
OUTPUT(1, real, sums)    // (num_rows,)

void main() {
  const uint row = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (row >= push.num_rows) return;
  accumulator sum = sum_zero();
  for (uint block = 0; block < push.num_blocks; ++block) sum = add(sum, partial.at[row * push.num_blocks + block]);
  sums.at[row] = value(sum);
}
