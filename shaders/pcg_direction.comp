#version 450
// dn_new = r's; beta = dn_new / dn; d = s + beta d; and the state of the next iteration, whose parity is the
// other one: it stops when dn_new <= d0, after max_iterations, or when A was found not to be positive definite; or
// when what the iterations gain is no longer worth them (Nash and Sofer 1990): the quadratic model 2 b'x - x'A x grows
// by alpha dn per iteration; as many iterations again, with this gain, would add less than a share of it, or than `worth`.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
PARAMETERS(uint num_rows; uint num_groups; uint parity;)
INPUT(0, accumulator, dots_rs)
INOUT(1, real, scalars)
INOUT(2, uint, status)
INPUT(3, real, s)
INOUT(4, real, d)
INPUT(5, uint, limits)  // [0]: max_iterations, [1]: before their gain counts
INPUT(6, uint, places)  // (num_rows,): of d in packed records
LARGE_OUTPUT(7, packed)  // records that a product reads d from (graphopt/codegen/gpu/packed_products.py)
layout(constant_id = 1) const uint PACKS = 0;

void main() {
  const uint here = push.parity, next = 1 - push.parity;
  const bool leader = LANE == 0 && WORKGROUP == 0;
  if (status.at[STOPPED + here] != 0) {
    if (leader) {
      status.at[STOPPED + next] = 1;
      status.at[ITERATIONS + next] = status.at[ITERATIONS + here];
      scalars.at[SQUARED_NORM + next] = scalars.at[SQUARED_NORM + here];
    }
    return;
  }
  uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  // Loaded before the sum is known.
  const real before = scalars.at[SQUARED_NORM + here];
  real s_i = s.at[min(i, push.num_rows - 1)], d_i = d.at[min(i, push.num_rows - 1)];
  SUM_PARTIALS(total, dots_rs, push.num_groups)
  const real dn = value(total);
  const real beta = dn / before;
  while (i < push.num_rows) {
    d.at[i] = s_i + beta * d_i;
    if (PACKS != 0) AT(packed, places.at[i], 0) = s_i + beta * d_i;
    i += push.num_groups * WORKGROUP_SIZE;
    if (i < push.num_rows) {
      s_i = s.at[i];
      d_i = d.at[i];
    }
  }
  if (leader) {
    const uint iterations = status.at[ITERATIONS + here] + 1;
    const real gain = scalars.at[GAIN], total_gain = scalars.at[TOTAL_GAIN + here] + gain;
    const real worth = max(scalars.at[SHARE] * total_gain, scalars.at[WORTH]);
    const bool going = dn > scalars.at[THRESHOLD] && iterations < limits.at[0] && status.at[INDEFINITE] == 0 &&
                       (iterations < limits.at[1] || real(iterations) * gain >= worth);
    status.at[STOPPED + next] = going ? 0 : 1;
    status.at[ITERATIONS + next] = iterations;
    scalars.at[SQUARED_NORM + next] = dn;
    scalars.at[TOTAL_GAIN + next] = total_gain;
  }
}
