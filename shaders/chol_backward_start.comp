#version 450
// Large fronts, 32 columns per workgroup and side: z = S z - L21' x2.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num; uint num_sides; uint dim;)
INPUT(0, uint, list)  // (front, block of 32 columns)
INPUT(1, uint, fronts)
INPUT(2, uint, rows)
LARGE_INPUT(3, factor)
INPUT(4, real, signs)
INOUT(5, real, z)
INPUT(6, real, x)

const uint LINE = BLOCK + 1, TEAMS = WORKGROUP_SIZE / BLOCK;
shared real parts[BLOCK * LINE];

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const uint entry = push.first + 2 * (WORKGROUP % push.num);
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint all = side * push.dim, column = BLOCK * list.at[entry + 1];
  const uint width = min(BLOCK, f.n - column);
  const uint lane = LANE % BLOCK, team = LANE / BLOCK;
  for (uint c = team; c < width; c += TEAMS) {
    real sum = ZERO;
    for (uint r = lane; r < f.m; r += BLOCK) {
      sum += AT(factor, f.factor, (column + c) * f.f + f.n + r) * x.at[all + rows.at[f.rows + r]];
    }
    parts[c * LINE + lane] = sum;
  }
  barrier();
  if (LANE >= width) return;
  real sum = ZERO;
  for (uint k = 0; k < BLOCK; ++k) sum += parts[LANE * LINE + k];
  const uint pivot = f.first_pivot + column + LANE;
  const real given = z.at[all + pivot];
  z.at[all + pivot] = (SIGNED != 0 ? signs.at[pivot] * given : given) - sum;
}
