#version 450
// Large fronts, one per workgroup and side: y of the pivots and `carry` of the rows below += what the children carry
// up, one child after the other.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num; uint num_sides; uint dim; uint num_carried;)
INPUT(0, uint, list)
INPUT(1, uint, fronts)
INPUT(2, uint, children)
INPUT(3, uint, parent_row)
GRAPHOPT_BUFFER(coherent, 4, real, y)
GRAPHOPT_BUFFER(coherent, 5, real, carry)

void main() {
  const uint side = WORKGROUP / push.num;
  if (side >= push.num_sides) return;  // rows of workgroups are filled up
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP % push.num]);
  const uint own = side * push.dim + f.first_pivot, carried = side * push.num_carried;
  for (uint r = LANE; r < f.m; r += WORKGROUP_SIZE) carry.at[carried + f.rows + r] = ZERO;
  for (uint k = f.children_begin; k < f.children_end; ++k) {
    memoryBarrierBuffer();
    barrier();
    const Front child = LOAD_FRONT(children.at[k]);
    for (uint r = LANE; r < child.m; r += WORKGROUP_SIZE) {
      const uint row = parent_row.at[child.rows + r];
      const real carried_up = carry.at[carried + child.rows + r];
      if (row < f.n) {
        y.at[own + row] += carried_up;
      } else {
        carry.at[carried + f.rows + row - f.n] += carried_up;
      }
    }
  }
}
