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
FRONT_INPUT(2, factor)
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
  const uint col = 128 * tile + LANE;
  const bool inside = col < push.column;
  real entries[BLOCK];
  [[unroll]] for (uint r = 0; r < BLOCK; ++r) {
    entries[r] = r < width && inside ? AT(factor, f.factor, col * f.f + push.column + r) : ZERO;
  }
  LOAD_TRIANGLE(f, push.column, width)
  solve_upper(mine, width);
  if (tile == 0 && LANE < width) x.at[own + push.column + LANE] = solved[LANE];
  if (!inside) return;
  const real sum = times_solved(entries);
  z.at[own + col] -= sum;
}
