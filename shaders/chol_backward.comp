#version 450
// L' x = S z of one front and one side per workgroup, in shared memory:  x1 = L11^-T (S z - L21' x2), where the
// fronts above have left x2. `rows` says which pivot each row below is. Then by blocks of pivots, from the last one.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "chol.glsl"
#include "chol_triangle.glsl"
layout(constant_id = 1) const uint CAPACITY = 64;
PARAMETERS(uint first; uint num; uint num_sides; uint dim;)
INPUT(0, uint, list)
INPUT(1, uint, fronts)
INPUT(2, uint, rows)
LARGE_INPUT(3, factor)
INPUT(4, real, signs)
INPUT(5, real, z)
INOUT(6, real, x)  // (sides, dim) in the order of elimination

const uint TEAMS = WORKGROUP_SIZE / BLOCK;
shared real v[CAPACITY];

// v of a block of pivots -= L21' v of the rows below: 32 lanes have a column at a time.
void subtract_below(Front f, uint column, uint width) {
  const uint lane = LANE % BLOCK, team = LANE / BLOCK;
  for (uint c = team; c < width; c += TEAMS) {
    real sum = ZERO;
    for (uint r = f.n + lane; r < f.f; r += BLOCK) sum += AT(factor, f.factor, (column + c) * f.f + r) * v[r];
    triangle[c * TRIANGLE_LINE + lane] = sum;
  }
  barrier();
  if (LANE < width) {
    real sum = ZERO;
    [[unroll]] for (uint k = 0; k < BLOCK; ++k) sum += triangle[LANE * TRIANGLE_LINE + k];
    v[column + LANE] -= sum;
  }
  barrier();
}

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP % push.num]);
  const uint all = side * push.dim, own = all + f.first_pivot;
  for (uint r = LANE; r < f.f; r += WORKGROUP_SIZE) {
    if (r < f.n) {
      v[r] = SIGNED != 0 ? signs.at[f.first_pivot + r] * z.at[own + r] : z.at[own + r];
    } else {
      v[r] = x.at[all + rows.at[f.rows + r - f.n]];
    }
  }
  barrier();
  for (uint column = 0; f.m > 0 && column < f.n; column += BLOCK) subtract_below(f, column, min(BLOCK, f.n - column));
  for (uint step = (f.n + BLOCK - 1) / BLOCK; step > 0; --step) {
    const uint column = BLOCK * (step - 1), width = min(BLOCK, f.n - column);
    real entries[BLOCK];  // of the first columns before, on their way while the triangle is solved with
    FETCH_BEFORE(f, column, width, 0, column)
    LOAD_TRIANGLE(f, column, width)
    solve_upper(LANE < width ? v[column + LANE] : ZERO, width);
    if (LANE < width) v[column + LANE] = solved[LANE];
    for (uint first = 0; first < column; first += WORKGROUP_SIZE) {
      if (first > 0) {
        FETCH_BEFORE(f, column, width, first, column)
      }
      [[unroll]] for (uint side_of = 0; side_of < 2; ++side_of) {
        const uint c = first + side_of * HALF + LANE;
        put_shares(entries, side_of);
        barrier();
        if (LANE < HALF && c < column) v[c] -= sum_of_shares();
        barrier();
      }
    }
    barrier();
  }
  for (uint r = LANE; r < f.n; r += WORKGROUP_SIZE) x.at[own + r] = v[r];
}
