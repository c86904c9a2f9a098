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
LARGE_INPUT(4, factor)
INPUT(5, real, y)      // (sides, dim)
OUTPUT(6, real, z)     // (sides, dim)
INOUT(7, real, carry)  // (sides, num_carried)

const uint CHILDREN = 32;
shared real v[CAPACITY];
shared uvec2 child[CHILDREN];  // m, rows

// What the children carry up: what the next one does is on its way while the present one's is added.
void add_children(Front f, uint carried) {
  for (uint first = f.children_begin; first < f.children_end; first += CHILDREN) {
    const uint num = min(CHILDREN, f.children_end - first);
    for (uint k = LANE; k < num; k += WORKGROUP_SIZE) {
      const uint place = FRONT_SIZE * children.at[first + k];
      child[k] = uvec2(fronts.at[place + 2], fronts.at[place + 5]);
    }
    barrier();
    uint row = LANE < child[0].x ? parent_row.at[child[0].y + LANE] : 0;
    real more = LANE < child[0].x ? carry.at[carried + child[0].y + LANE] : ZERO;
    for (uint k = 0; k < num; ++k) {
      const uvec2 of = child[k], next = k + 1 < num ? child[k + 1] : uvec2(0);
      const uint next_row = LANE < next.x ? parent_row.at[next.y + LANE] : 0;
      const real next_more = LANE < next.x ? carry.at[carried + next.y + LANE] : ZERO;
      if (LANE < of.x) v[row] += more;
      for (uint r = LANE + WORKGROUP_SIZE; r < of.x; r += WORKGROUP_SIZE) {
        v[parent_row.at[of.y + r]] += carry.at[carried + of.y + r];
      }
      row = next_row;
      more = next_more;
      barrier();
    }
  }
}

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP % push.num]);
  const uint own = side * push.dim + f.first_pivot, carried = side * push.num_carried;
  for (uint r = LANE; r < f.f; r += WORKGROUP_SIZE) v[r] = r < f.n ? y.at[own + r] : ZERO;
  barrier();
  add_children(f, carried);
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
