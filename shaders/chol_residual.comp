#version 450
// Iterative refinement, a row of the matrix per invocation: rest = b - (H + D) x, in reals, then as float32.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint DAMPED = 1;
PARAMETERS(uint dim;)
INPUT(0, uint, rows)     // (dim, 3): first and end of its blocks in `blocks`, row within them
INPUT(1, uint, blocks)   // (.., 4): offset in values, first row of x, rows of x, distance of these in values
LARGE_INPUT(2, values)
INPUT(3, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
INPUT(4, real, b)
INPUT(5, real, x)
OUTPUT(6, float, rest)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.dim) return;
  const uint begin = rows.at[3 * i], end = rows.at[3 * i + 1], within = rows.at[3 * i + 2];
  real sum = b.at[i];
  if (DAMPED != 0) sum -= damping_of(i) * x.at[i];
  for (uint k = begin; k < end; ++k) {
    const uint first = blocks.at[4 * k + 1], num = blocks.at[4 * k + 2], step = blocks.at[4 * k + 3];
    // step 1: the block is stored transposed, its columns are rows of the matrix
    const uint start = blocks.at[4 * k] + (step == 1 ? within * num : within);
    for (uint j = 0; j < num; ++j) sum -= AT(values, start, j * step) * x.at[first + j];
  }
  rest.at[i] = float(sum);
}
