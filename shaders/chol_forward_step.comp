#version 450
// Large fronts, one block of 32 columns: z = L11^-1 y of the block, which every workgroup solves for itself, and
// y or carry of 128 rows further down -= L z.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "chol.glsl"
#include "chol_triangle.glsl"
PARAMETERS(uint first; uint num; uint num_sides; uint column; uint dim; uint num_carried;)
INPUT(0, uint, list)  // (front, tile of 128 rows after the block)
INPUT(1, uint, fronts)
LARGE_INPUT(2, factor)
INOUT(3, real, y)
OUTPUT(4, real, z)
INOUT(5, real, carry)

// 128 invocations
void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const uint entry = push.first + 2 * (WORKGROUP % push.num);
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint tile = list.at[entry + 1], own = side * push.dim + f.first_pivot;
  const uint width = min(BLOCK, f.n - push.column);
  real mine = LANE < width ? y.at[own + push.column + LANE] : ZERO;
  const uint row = push.column + width + 128 * tile + LANE;
  real entries[BLOCK];
  [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
    entries[c] = c < width && row < f.f ? AT(factor, f.factor, (push.column + c) * f.f + row) : ZERO;
  }
  LOAD_TRIANGLE(f, push.column, width)
  solve_lower(mine, width);
  if (tile == 0 && LANE < width) z.at[own + push.column + LANE] = solved[LANE];
  if (row >= f.f) return;
  const real sum = times_solved(entries);
  if (row < f.n) {
    y.at[own + row] -= sum;
  } else {
    carry.at[side * push.num_carried + f.rows + row - f.n] -= sum;
  }
}
