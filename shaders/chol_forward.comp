#version 450
// L z = y of one front and one side per workgroup, in shared memory:
//   v = [y of the pivots; 0] + what the children carry up;  z = L11^-1 v1;  carry = v2 - L21 z
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "chol.glsl"
#include "chol_triangle.glsl"
layout(constant_id = 1) const uint CAPACITY = 64;  // rows of a front at most
PARAMETERS(uint first; uint num; uint num_sides; uint dim; uint num_carried;)
INPUT(0, uint, list)
INPUT(1, uint, fronts)
INPUT(2, uint, children)
INPUT(3, uint, parent_row)
FRONT_INPUT(4, factor)
INPUT(5, real, y)      // (sides, dim)
OUTPUT(6, real, z)     // (sides, dim)
INOUT(7, real, carry)  // (sides, num_carried)

shared real v[CAPACITY];

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP % push.num]);
  const uint own = side * push.dim + f.first_pivot, carried = side * push.num_carried;
  for (uint r = LANE; r < f.f; r += WORKGROUP_SIZE) v[r] = r < f.n ? y.at[own + r] : ZERO;
  barrier();
  for (uint k = f.children_begin; k < f.children_end; ++k) {
    const Front child = LOAD_FRONT(children.at[k]);
    for (uint r = LANE; r < child.m; r += WORKGROUP_SIZE) {
      v[parent_row.at[child.rows + r]] += carry.at[carried + child.rows + r];
    }
    barrier();
  }
  for (uint column = 0; column < f.n; column += BLOCK) {
    const uint width = min(BLOCK, f.n - column), after = column + width + LANE;
    real entries[BLOCK];  // of the first row below, on their way while the triangle is solved with
    [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
      entries[c] = c < width && after < f.f ? AT(factor, f.factor, (column + c) * f.f + after) : ZERO;
    }
    LOAD_TRIANGLE(f, column, width)
    solve_lower(LANE < width ? v[column + LANE] : ZERO, width);
    if (LANE < width) v[column + LANE] = solved[LANE];
    for (uint r = after; r < f.f; r += WORKGROUP_SIZE) {
      if (r != after) {
        [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
          entries[c] = c < width ? AT(factor, f.factor, (column + c) * f.f + r) : ZERO;
        }
      }
      v[r] -= times_solved(entries);
    }
    barrier();
  }
  for (uint r = LANE; r < f.f; r += WORKGROUP_SIZE) {
    if (r < f.n) {
      z.at[own + r] = v[r];
    } else {
      carry.at[carried + f.rows + r - f.n] = v[r];
    }
  }
}
