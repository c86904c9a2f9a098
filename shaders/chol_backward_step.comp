#version 450
// Large fronts, one block of 32 columns: x = L11^-T z of the block, which every workgroup solves for itself, and
// z of 128 columns before it -= L(block, columns)' x.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "chol.glsl"
#include "chol_triangle.glsl"
PARAMETERS(uint first; uint num; uint num_sides; uint column; uint dim;)
INPUT(0, uint, list)  // (front, tile of 128 columns)
INPUT(1, uint, fronts)
LARGE_INPUT(2, factor)
INOUT(3, real, z)
OUTPUT(4, real, x)

// 128 invocations
void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const uint entry = push.first + 2 * (WORKGROUP % push.num);
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint tile = list.at[entry + 1], own = side * push.dim + f.first_pivot;
  const uint width = min(BLOCK, f.n - push.column);
  real mine = LANE < width ? z.at[own + push.column + LANE] : ZERO;
  const uint first = 128 * tile;
  real entries[BLOCK];
  FETCH_BEFORE(f, push.column, width, first, push.column)
  LOAD_TRIANGLE(f, push.column, width)
  solve_upper(mine, width);
  if (tile == 0 && LANE < width) x.at[own + push.column + LANE] = solved[LANE];
  [[unroll]] for (uint side_of = 0; side_of < 2; ++side_of) {
    const uint c = first + side_of * HALF + LANE;
    put_shares(entries, side_of);
    barrier();
    if (LANE < HALF && c < push.column) z.at[own + c] -= sum_of_shares();
    barrier();
  }
}
