#version 450
// Large fronts, one block of 32 columns: z = L11^-1 y of the block, which every workgroup solves for itself, and
// y or carry of 128 rows further down -= L z.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num; uint num_sides; uint column; uint dim; uint num_carried;)
INPUT(0, uint, list)  // (front, tile of 128 rows after the block)
INPUT(1, uint, fronts)
FRONT_INPUT(2, factor)
INOUT(3, real, y)
OUTPUT(4, real, z)
INOUT(5, real, carry)

// 128 invocations
const uint LINE = BLOCK + 1;
shared real v[BLOCK], inverse[BLOCK], block[BLOCK * LINE];

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const uint entry = push.first + 2 * (WORKGROUP % push.num);
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint tile = list.at[entry + 1], own = side * push.dim + f.first_pivot;
  const uint width = min(BLOCK, f.n - push.column);
  for (uint e = LANE; e < BLOCK * width; e += 128) {
    const uint r = e % BLOCK, c = e / BLOCK;
    if (r >= c && r < width) block[c * LINE + r] = AT(factor, f.factor, (push.column + c) * f.f + push.column + r);
    if (r == c) inverse[c] = ONE / block[c * LINE + c];
  }
  real mine = LANE < width ? y.at[own + push.column + LANE] : ZERO;
  const uint row = push.column + width + 128 * tile + LANE;
  real entries[BLOCK];
  [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
    entries[c] = c < width && row < f.f ? AT(factor, f.factor, (push.column + c) * f.f + row) : ZERO;
  }
  barrier();
  for (uint c = 0; c < width; ++c) {
    if (LANE == c) v[c] = mine * inverse[c];
    barrier();
    if (LANE > c && LANE < width) mine -= block[c * LINE + LANE] * v[c];
  }
  if (tile == 0 && LANE < width) z.at[own + push.column + LANE] = v[LANE];
  if (row >= f.f) return;
  real sum = ZERO;
  [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
    if (c < width) sum += entries[c] * v[c];
  }
  if (row < f.n) {
    y.at[own + row] -= sum;
  } else {
    carry.at[side * push.num_carried + f.rows + row - f.n] -= sum;
  }
}
