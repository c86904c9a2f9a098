#version 450
// alpha = dn / d'q; x += alpha d; r_new = r - alpha q; u = J r_new (block-Jacobi), into packed records, too, where
// PACKS, and the end of the iteration (pcg_end.glsl). d, q = A d and the parts of d'q come from the end of the product. r is read and r_new written: a row
// of J needs the whole block. d'q <= 0 means that A is not positive definite: noted, and x stays.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 14
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 0;  // of all blocks; 0: jacobi_rows has it
layout(constant_id = 2) const uint PACKS = 0;
PARAMETERS(uint num_rows; uint num_groups; uint ping_pong; uint num_dots;)
INPUT(0, uint, jacobi_rows)    // (num_rows, 3): offset of the row in J, first row of the block, its dimension
LARGE_INPUT(1, jacobi)
INPUT(2, accumulator, dots_dq)  // (num_dots,)
INOUT(3, real, scalars)
INOUT(4, uint, status)
INPUT(5, real, d)
INPUT(6, real, q)
INPUT(7, real, r)
OUTPUT(8, real, r_new)
INOUT(9, real, x)
OUTPUT(10, real, u)
GRAPHOPT_BUFFER(restrict coherent, 11, accumulator, dots_rs)  // (num_groups,): the parts of r_new' u
INPUT(12, uint, places)   // (num_rows,): of u in packed records
LARGE_OUTPUT(13, packed)  // records that a product reads u from (graphopt/codegen/gpu/packed_products.py)
#include "pcg_end.glsl"

// What a row needs, loaded before the sums are known. DIM = 0: the row of J is read where it is used.
struct Row {
  uint start, first, dim, place;
  real d, x, r, q;
};
const uint HELD = DIM != 0 ? DIM : 1;
real of_j[HELD], of_r[HELD], of_q[HELD];

Row load(uint i) {
  Row row;
  row.start = jacobi_rows.at[3 * i];
  row.first = jacobi_rows.at[3 * i + 1];
  row.dim = DIM != 0 ? DIM : jacobi_rows.at[3 * i + 2];
  row.place = PACKS != 0 ? places.at[i] : 0;
  row.d = d.at[i];
  row.x = x.at[i];
  row.r = r.at[i];
  row.q = q.at[i];
  [[unroll]] for (uint j = 0; j < DIM; ++j) {
    of_j[j] = AT(jacobi, row.start, DIM * j);
    of_r[j] = r.at[row.first + j];
    of_q[j] = q.at[row.first + j];
  }
  return row;
}

real preconditioned(Row row, real alpha) {
  accumulator sum = sum_zero();
  [[unroll]] for (uint j = 0; j < DIM; ++j) sum = add_product(sum, of_j[j], of_r[j] - alpha * of_q[j]);
  if (DIM == 0) {
    for (uint j = 0; j < row.dim; ++j) {
      sum = add_product(sum, AT(jacobi, row.start, row.dim * j), r.at[row.first + j] - alpha * q.at[row.first + j]);
    }
  }
  return value(sum);
}

void main() {
  if (status.at[STOPPED + push.ping_pong] != 0) {
    pcg_hand_on();
    return;
  }
  const uint stride = push.num_groups * WORKGROUP_SIZE;
  uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  Row row = load(min(i, push.num_rows - 1));
  const real dn = scalars.at[SQUARED_NORM + push.ping_pong];
  SUM_PARTIALS(total, dots_dq, push.num_dots)
  const real dq = value(total);
  const bool definite = dq > ZERO;
  const real alpha = definite ? dn / dq : ZERO;
  accumulator dot = sum_zero();
  while (i < push.num_rows) {
    const real ri = row.r - alpha * row.q;
    x.at[i] = row.x + alpha * row.d;
    r_new.at[i] = ri;
    const real ui = preconditioned(row, alpha);
    u.at[i] = ui;
    if (PACKS != 0) AT(packed, row.place, 0) = ui;
    dot = add_product(dot, ri, ui);
    i += stride;
    if (i < push.num_rows) row = load(i);
  }
  pcg_end_iteration(dot, alpha * dn, definite);
}
