#version 450
// inverse_k = (A_k + D_k)^-1 for symmetric positive definite diagonal blocks A_k of dimension DIM, any DIM.
//   A + D = L L'   column by column;   X = L^-1 by forward substitution, one column per invocation;   A^-1 = X' X
// A team of DIM invocations per block, floor(WORKGROUP_SIZE / DIM) blocks per workgroup, all in shared memory.
// A pivot must be larger than EPSILON times its diagonal entry, as on the CPU (native/src/linear/small_blocks.h). With
// SPARE, a block that is not definite gives way to another one, B_k + D_k. Where that is not either, or there is none,
// status[INDEFINITE] is set.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "damping.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 3;
layout(constant_id = 2) const uint DAMPED = 1;  // 0: A without D
layout(constant_id = 3) const uint SPARE = 0;  // 1: there are blocks B
layout(constant_id = 4) const uint UPPER = 0;  // 1: of an inverse only the upper triangle is stored, by columns
PARAMETERS(uint first_block; uint num_blocks;)
INPUT(0, uint, blocks)      // (num_blocks_of_all_dims, 3 + SPARE): offsets of A in values, D in damping, inverse, B
#define COLUMNS (3 + SPARE)
#include "block_places.glsl"
LARGE_INPUT(1, values)      // column-major blocks
INPUT(2, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
LARGE_OUTPUT(3, inverse)    // column-major blocks, both triangles but where UPPER
INOUT(4, uint, status)
LARGE_INPUT(5, spare)       // column-major blocks; values where there is no SPARE

#if defined(GRAPHOPT_DOUBLE)
const real EPSILON = 2.220446049250313e-16lf;
#else
const real EPSILON = 1.1920929e-7;
#endif
const uint TEAMS = WORKGROUP_SIZE / DIM;
const uint AREA = DIM * DIM;
shared real factor[TEAMS * AREA];   // L, column-major; a pivot that is none is -1
shared real inverted[TEAMS * AREA];  // X = L^-1, column-major

// L of the team's block in `factor`; false: it is not definite. All invocations of the workgroup call it.
bool factorize(bool busy, uint base, uint row) {
  bool is_definite = true;
  const real diagonal = busy ? factor[base + row + DIM * row] : ONE;
  for (uint k = 0; k < DIM; ++k) {
    barrier();
    if (busy && row == k) {
      const real pivot = factor[base + k + DIM * k];
      factor[base + k + DIM * k] = pivot > EPSILON * diagonal && !isinf(pivot) ? sqrt(pivot) : -ONE;
    }
    barrier();
    real left = ZERO;
    if (busy) {
      const real pivot = factor[base + k + DIM * k];
      if (!(pivot > ZERO)) is_definite = false;
      if (row > k) {
        left = factor[base + row + DIM * k] / pivot;
        factor[base + row + DIM * k] = left;
      }
    }
    barrier();
    if (busy && row > k) {
      for (uint c = k + 1; c <= row; ++c) factor[base + row + DIM * c] -= left * factor[base + c + DIM * k];
    }
  }
  barrier();
  return is_definite;
}

void main() {
  const uint team = LANE / DIM, row = LANE % DIM;
  const uint block = WORKGROUP * TEAMS + team;
  const bool busy = team < TEAMS && block < push.num_blocks;
  const uint base = team * AREA, k = push.first_block + (busy ? block : 0);
  if (busy) {
    const uint source = block_place(k, 0, AREA);
    for (uint c = 0; c < DIM; ++c) factor[base + row + DIM * c] = AT(values, source, row + DIM * c);
    if (DAMPED != 0) factor[base + row + DIM * row] += damping_of(block_place(k, 1, DIM) + row);
  }
  bool is_definite = factorize(busy, base, row);
  if (SPARE != 0) {
    const bool again = busy && !is_definite;
    if (again) {
      const uint source = block_place(k, 3, AREA);
      for (uint c = 0; c < DIM; ++c) factor[base + row + DIM * c] = AT(spare, source, row + DIM * c);
      factor[base + row + DIM * row] += damping_of(block_place(k, 1, DIM) + row);
    }
    if (again) is_definite = true;
    if (!factorize(again, base, row)) is_definite = false;
  }
  if (busy && row == 0 && !is_definite) status.at[INDEFINITE] = 1;
  if (busy) {  // column `row` of X
    for (uint i = row; i < DIM; ++i) {
      real rest = i == row ? ONE : ZERO;
      for (uint k = row; k < i; ++k) rest -= factor[base + i + DIM * k] * inverted[base + k + DIM * row];
      inverted[base + i + DIM * row] = rest / factor[base + i + DIM * i];
    }
  }
  barrier();
  if (busy) {
    const uint target = block_place(k, 2, UPPER != 0 ? DIM * (DIM + 1) / 2 : AREA);
    for (uint c = UPPER != 0 ? row : 0; c < DIM; ++c) {
      accumulator s = sum_zero();
      for (uint k = max(row, c); k < DIM; ++k) {
        s = add_product(s, inverted[base + k + DIM * row], inverted[base + k + DIM * c]);
      }
      AT(inverse, target, row + (UPPER != 0 ? c * (c + 1) / 2 : DIM * c)) = value(s);
    }
  }
}
