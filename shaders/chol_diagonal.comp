#version 450
// The factored diagonal blocks of large fronts, which chol_panel left beside, into the factor.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first;)
INPUT(0, uint, list)       // (front, block of 32 columns, first entry of the front in `diagonals`)
INPUT(1, uint, fronts)
INPUT(2, real, diagonals)
LARGE_OUTPUT(3, factor)

void main() {
  const uint entry = push.first + 3 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint column = BLOCK * list.at[entry + 1], slot = list.at[entry + 2];
  const uint width = min(BLOCK, f.n - column);
  for (uint e = LANE; e < BLOCK * width; e += WORKGROUP_SIZE) {
    const uint r = e % BLOCK, c = e / BLOCK;
    if (r >= c && r < width) {
      AT(factor, f.factor, (column + c) * f.f + column + r) = diagonals.at[BLOCK * (slot + column + c) + r];
    }
  }
}
