#version 450
// Start of the conjugate gradients: x = 0, u = J r; dots[g] = the part of r' u of workgroup g.
// J: inverted diagonal blocks (block-Jacobi). Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "reduce.glsl"
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, uint, jacobi_rows)    // (num_rows, 3): offset of the row in J, first row of the block, its dimension
LARGE_INPUT(1, jacobi)
INPUT(2, real, r)
OUTPUT(3, real, x)
OUTPUT(4, real, u)
OUTPUT(5, accumulator, dots)
INPUT(6, uint, places)   // (num_rows,): of u in packed records
LARGE_OUTPUT(7, packed)  // records that a product reads u from
layout(constant_id = 1) const uint PACKS = 0;

void main() {
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const uint start = jacobi_rows.at[3 * i], first = jacobi_rows.at[3 * i + 1], dim = jacobi_rows.at[3 * i + 2];
    accumulator ui = sum_zero();
    for (uint j = 0; j < dim; ++j) ui = add_product(ui, AT(jacobi, start, dim * j), r.at[first + j]);
    x.at[i] = ZERO;
    u.at[i] = value(ui);
    if (PACKS != 0) AT(packed, places.at[i], 0) = value(ui);
    dot = add_product(dot, r.at[i], value(ui));
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots.at[WORKGROUP] = dot;
}
