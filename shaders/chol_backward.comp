#version 450
// L' x = S z of one front and one side per workgroup, in shared memory:  x1 = L11^-T (S z - L21' x2), where the
// fronts above have left x2. `rows` says which pivot each row below is.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint CAPACITY = 64;
PARAMETERS(uint first; uint num; uint num_sides; uint dim;)
INPUT(0, uint, list)
INPUT(1, uint, fronts)
INPUT(2, uint, rows)
FRONT_INPUT(3, factor)
INPUT(4, real, signs)
INPUT(5, real, z)
INOUT(6, real, x)  // (sides, dim) in the order of elimination

const uint LINE = BLOCK + 1, TEAMS = WORKGROUP_SIZE / BLOCK;
shared real v[CAPACITY], inverse[BLOCK], block[BLOCK * LINE];

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP % push.num]);
  const uint all = side * push.dim, own = all + f.first_pivot;
  const uint lane = LANE % BLOCK, team = LANE / BLOCK;
  for (uint r = LANE; r < f.f; r += WORKGROUP_SIZE) {
    if (r < f.n) {
      v[r] = SIGNED != 0 ? signs.at[f.first_pivot + r] * z.at[own + r] : z.at[own + r];
    } else {
      v[r] = x.at[all + rows.at[f.rows + r - f.n]];
    }
  }
  barrier();
  for (uint step = (f.n + BLOCK - 1) / BLOCK; step > 0; --step) {
    const uint column = BLOCK * (step - 1), width = min(BLOCK, f.n - column);
    for (uint c = team; c < width; c += TEAMS) {
      real sum = ZERO;
      for (uint r = column + width + lane; r < f.f; r += BLOCK) {
        sum += AT(factor, f.factor, (column + c) * f.f + r) * v[r];
      }
      block[c * LINE + lane] = sum;
    }
    barrier();
    if (LANE < width) {
      real sum = ZERO;
      for (uint k = 0; k < BLOCK; ++k) sum += block[LANE * LINE + k];
      v[column + LANE] -= sum;
    }
    barrier();
    for (uint e = LANE; e < BLOCK * width; e += WORKGROUP_SIZE) {
      const uint r = e % BLOCK, c = e / BLOCK;
      if (r >= c && r < width) block[c * LINE + r] = AT(factor, f.factor, (column + c) * f.f + column + r);
      if (r == c) inverse[c] = ONE / block[c * LINE + c];
    }
    real mine = LANE < width ? v[column + LANE] : ZERO;
    barrier();
    for (uint back = width; back > 0; --back) {
      const uint c = back - 1;
      if (LANE == c) v[column + c] = mine * inverse[c];
      barrier();
      if (LANE < c) mine -= block[LANE * LINE + c] * v[column + c];
    }
  }
  for (uint r = LANE; r < f.n; r += WORKGROUP_SIZE) x.at[own + r] = v[r];
}
