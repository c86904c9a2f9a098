#version 450
// Half of y = A x for a symmetric A of equal blocks, DIM x DIM, upper triangle by columns: each block is read once
// and used twice. A workgroup takes a chunk of column j:
//   own     = sum over its blocks of B_ij' x_i    one vector for row j
//   given_i = B_ij x_j, i < j                     one vector per block, for row i
// Both go where row_gather finds all vectors of a row side by side. Blocks come through shared memory, so that
// consecutive invocations read consecutive scalars, the next ones while the present ones are used; an invocation
// computes entry `lane` of both for one block.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 6;
layout(constant_id = 2) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
PARAMETERS(uint num_chunks; uint parity;)
INPUT(0, uint, chunks)          // (num_chunks, 4): first block, one past the last, first scalar of j, place of own
INPUT(1, uint, block_scalar)    // (num_blocks,): first scalar of i
INPUT(2, uint, block_place)     // (num_blocks,): place of given; NOTHING: a diagonal block
LARGE_INPUT(3, values)          // (num_blocks, DIM * DIM): column-major blocks
INPUT(4, real, x)
OUTPUT(5, accumulator, partial)
INPUT(6, uint, status)

const uint AREA = DIM * DIM;
const uint BLOCKS = WORKGROUP_SIZE / DIM;  // at a time
const uint LOADS = (BLOCKS * AREA + WORKGROUP_SIZE - 1) / WORKGROUP_SIZE;
shared real stage[BLOCKS * AREA];
shared accumulator scratch[WORKGROUP_SIZE];
real held[LOADS];  // blocks on their way to the stage

void load(uint base, uint end) {
  const uint last = min(BLOCKS, end - base) * AREA - 1;
  [[unroll]] for (uint n = 0; n < LOADS; ++n) held[n] = AT(values, base * AREA, min(LANE + n * WORKGROUP_SIZE, last));
}

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.parity] != 0) return;
  if (WORKGROUP >= push.num_chunks) return;
  const uint entry = 4 * WORKGROUP, end = chunks.at[entry + 1], column = chunks.at[entry + 2];
  const uint local = LANE / DIM, lane = LANE % DIM;
  real x_j[DIM];
  [[unroll]] for (uint q = 0; q < DIM; ++q) x_j[q] = x.at[column + q];
  accumulator own = sum_zero();
  uint base = chunks.at[entry];
  load(base, end);
  for (; base < end; base += BLOCKS) {
    const uint k = base + local;
    const bool busy = local < BLOCKS && k < end;
    uint row = 0, place = NOTHING;
    if (busy) {
      row = block_scalar.at[k];
      place = block_place.at[k];
    }
    barrier();  // earlier readers of the stage are done
    [[unroll]] for (uint n = 0; n < LOADS; ++n) {
      const uint at = LANE + n * WORKGROUP_SIZE;
      if (at < BLOCKS * AREA) stage[at] = held[n];
    }
    barrier();
    if (base + BLOCKS < end) load(base + BLOCKS, end);
    if (busy) {
      accumulator given = sum_zero();
      [[unroll]] for (uint q = 0; q < DIM; ++q) {
        given = add_product(given, stage[local * AREA + lane + DIM * q], x_j[q]);
        own = add_product(own, stage[local * AREA + q + DIM * lane], x.at[row + q]);
      }
      if (place != NOTHING) partial.at[place + lane] = given;
    }
  }
  scratch[LANE] = own;
  for (uint n = BLOCKS; n > 1; n = (n + 1) / 2) {  // n sums are left; halve them
    const uint half_n = (n + 1) / 2;
    barrier();
    if (local + half_n < n) scratch[LANE] = merge(scratch[LANE], scratch[LANE + half_n * DIM]);
  }
  if (LANE < DIM) partial.at[chunks.at[entry + 3] + LANE] = scratch[LANE];
}
