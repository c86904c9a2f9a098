#version 450
// alpha = dn / d'q; x += alpha d; r_new = r - alpha q; s = J r_new; dots_rs[g] = the part of r_new' s of
// workgroup g. q = A d and the parts of d'q come from row_combine. r is read and r_new written: a row of J
// needs the whole block. d'q <= 0 means that A is not positive definite: noted, and x stays.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 12
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 0;  // of all blocks; 0: jacobi_rows has it
PARAMETERS(uint num_rows; uint num_groups; uint parity; uint num_dots;)
INPUT(0, uint, jacobi_rows)    // (num_rows, 3): offset of the row in J, first row of the block, its dimension
INPUT(1, real, jacobi)
INPUT(2, accumulator, dots_dq)  // (num_dots,)
INPUT(3, real, scalars)
INOUT(4, uint, status)
INPUT(5, real, d)
INPUT(6, real, q)
INPUT(7, real, r)
OUTPUT(8, real, r_new)
INOUT(9, real, x)
OUTPUT(10, real, s)
OUTPUT(11, accumulator, dots_rs)

void main() {
  if (status.at[STOPPED + push.parity] != 0) return;
  SUM_PARTIALS(total, dots_dq, push.num_dots)
  const real dq = value(total);
  const bool definite = dq > ZERO;
  const real alpha = definite ? scalars.at[SQUARED_NORM + push.parity] / dq : ZERO;
  if (!definite && LANE == 0 && WORKGROUP == 0) status.at[INDEFINITE] = 1;
  accumulator dot = sum_zero();
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const uint start = jacobi_rows.at[3 * i], first = jacobi_rows.at[3 * i + 1];
    const uint dim = DIM != 0 ? DIM : jacobi_rows.at[3 * i + 2];
    accumulator si = sum_zero();
    [[unroll]] for (uint j = 0; j < dim; ++j) {
      si = add_product(si, jacobi.at[start + dim * j], r.at[first + j] - alpha * q.at[first + j]);
    }
    const real ri = r.at[i] - alpha * q.at[i];
    x.at[i] += alpha * d.at[i];
    r_new.at[i] = ri;
    s.at[i] = value(si);
    dot = add_product(dot, ri, value(si));
  }
  dot = workgroup_sum(dot);
  if (LANE == 0) dots_rs.at[WORKGROUP] = dot;
}
