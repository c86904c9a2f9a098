#version 450
// Half of y = A x for a symmetric A of equal blocks, DIM x DIM, upper triangle by columns: each block is read once
// and used twice. A workgroup takes a chunk of column j:
//   own     = sum over its blocks of B_ij' x_i    one vector for row j
//   given_i = B_ij x_j, i < j                     one vector per block, for row i
// Both go where row_gather finds all vectors of a row side by side. An invocation takes one row of a block: it sums
// its entry of `given` itself, and keeps what it adds to each entry of `own` until the end of the chunk. Consecutive
// invocations read consecutive scalars, AHEAD blocks each in flight.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 6;
layout(constant_id = 2) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
PARAMETERS(uint num_chunks; uint ping_pong;)
INPUT(0, uint, chunks)          // (num_chunks, 4): first block, one past the last, first scalar of j, place of own
INPUT(1, uint, block_scalar)    // (num_blocks,): first scalar of i
INPUT(2, uint, block_place)     // (num_blocks,): place of given; NOTHING: a diagonal block
LARGE_INPUT(3, values)          // (num_blocks, DIM * DIM): column-major blocks
INPUT(4, real, x)
OUTPUT(5, accumulator, partial)
INPUT(6, uint, status)

const uint AREA = DIM * DIM;
const uint BLOCKS = WORKGROUP_SIZE / DIM;  // at a time
const uint BUSY = BLOCKS * DIM;            // invocations
#if defined(GRAPHOPT_DOUBLE)
const uint AHEAD = 1;  // blocks in flight: as many bytes in either precision
#else
const uint AHEAD = 3;
#endif
shared accumulator scratch[DIM * BUSY];

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  if (WORKGROUP >= push.num_chunks) return;
  const uint chunk = 4 * WORKGROUP, end = chunks.at[chunk + 1], column = chunks.at[chunk + 2];
  const uint local = LANE / DIM, lane = LANE % DIM;
  real x_j[DIM];
  accumulator own[DIM];
  [[unroll]] for (uint q = 0; q < DIM; ++q) {
    x_j[q] = x.at[column + q];
    own[q] = sum_zero();
  }
  if (local < BLOCKS) {
    for (uint k = chunks.at[chunk] + local; k < end; k += AHEAD * BLOCKS) {
      real b[AHEAD * DIM], x_i[AHEAD];
      uint place[AHEAD];
      [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
        const uint block = min(k + n * BLOCKS, end - 1);
        [[unroll]] for (uint q = 0; q < DIM; ++q) b[n * DIM + q] = AT(values, block * AREA, lane + DIM * q);
        x_i[n] = x.at[block_scalar.at[block] + lane];
        place[n] = block_place.at[block];
      }
      [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
        if (k + n * BLOCKS < end) {
          accumulator given = sum_zero();
          [[unroll]] for (uint q = 0; q < DIM; ++q) {
            given = add_product(given, b[n * DIM + q], x_j[q]);
            own[q] = add_product(own[q], b[n * DIM + q], x_i[n]);
          }
          if (place[n] != NOTHING) partial.at[place[n] + lane] = given;
        }
      }
    }
    [[unroll]] for (uint q = 0; q < DIM; ++q) scratch[q * BUSY + LANE] = own[q];
  }
  barrier();
  accumulator s = sum_zero();  // entry `lane` of own, over the rows of the blocks `local`
  if (local < BLOCKS) {
    [[unroll]] for (uint r = 0; r < DIM; ++r) s = merge(s, scratch[lane * BUSY + local * DIM + r]);
  }
  barrier();
  if (local < BLOCKS) scratch[LANE] = s;
  for (uint n = BLOCKS; n > 1; n = (n + 1) / 2) {  // n sums are left; halve them
    const uint half_n = (n + 1) / 2;
    barrier();
    if (local + half_n < n) scratch[LANE] = merge(scratch[LANE], scratch[LANE + half_n * DIM]);
  }
  if (LANE < DIM) partial.at[chunks.at[chunk + 3] + LANE] = scratch[LANE];
}
