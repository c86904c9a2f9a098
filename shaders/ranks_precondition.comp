#version 450
// s = J r with block-Jacobi, and dots[g] = the part of r' s of workgroup g over the rows that this rank owns.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "reduce.glsl"
PARAMETERS(uint num_rows; uint num_groups;)
layout(constant_id = 1) const uint PACKS = 0;
INPUT(0, uint, jacobi_rows)  // (num_rows, 3): offset of the row in J, first row of the block, its dimension
LARGE_INPUT(1, jacobi)
INPUT(2, real, r)
INPUT(3, uint, is_owned)   // (num_rows,): 1 or 0
OUTPUT(4, real, s)
OUTPUT(5, accumulator, dots)
INPUT(6, uint, places)   // (num_rows,): of s in packed records
LARGE_OUTPUT(7, packed)  // records that a product reads s from

void main() {
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const uint start = jacobi_rows.at[3 * i], first = jacobi_rows.at[3 * i + 1], dim = jacobi_rows.at[3 * i + 2];
    accumulator sum = sum_zero();
    for (uint j = 0; j < dim; ++j) sum = add_product(sum, AT(jacobi, start, dim * j), r.at[first + j]);
    const real s_i = value(sum);
    s.at[i] = s_i;
    if (PACKS != 0) AT(packed, places.at[i], 0) = s_i;
    if (is_owned.at[i] != 0) dot = add_product(dot, r.at[i], s_i);
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots.at[WORKGROUP] = dot;
}
