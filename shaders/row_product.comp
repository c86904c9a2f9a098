#version 450
// One chunk of a block row of a sparse product: partial_c = sum over items k of chunk c of op(B_k) x_k, where op is
// the identity or the transpose (symmetric matrices store their upper triangle only).
// Binned by ROWS x COLS; what is rare goes into one bin with ROWS = COLS = 0, whose chunks carry their dimensions.
// ROWS * PARALLEL invocations work on a chunk: PARALLEL items at a time, an invocation per row;
// WORKGROUP_SIZE / (ROWS * PARALLEL) chunks share a workgroup. Their sums are merged in a fixed order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
layout(constant_id = 3) const uint PARALLEL = 4;
layout(constant_id = 4) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
PARAMETERS(uint first_chunk; uint num_chunks; uint ping_pong;)
INPUT(0, uint, chunks)          // (num_chunks_of_all_bins, 4): first item, one past the last, first entry of partial,
                                // rows + 256 * cols
INPUT(1, uint, item_block)      // (num_items,): offset of B in values
INPUT(2, uint, item_scalar)     // (num_items,): first scalar in x; bit 31: transposed
LARGE_INPUT(3, values)
INPUT(4, real, x)
OUTPUT(5, accumulator, partial)
INPUT(6, uint, status)

const uint LANE_ROWS = ROWS != 0 ? ROWS : MAX_DIM;
const uint LANES = LANE_ROWS * PARALLEL;
const uint SLOTS = WORKGROUP_SIZE / LANES;
shared accumulator scratch[WORKGROUP_SIZE];

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const uint slot = LANE / LANES, row = LANE % LANES % LANE_ROWS, part = LANE % LANES / LANE_ROWS;
  const uint chunk = WORKGROUP * SLOTS + slot;
  const uint entry = 4 * (push.first_chunk + chunk);
  bool busy = slot < SLOTS && chunk < push.num_chunks;
  uint rows = ROWS, cols = COLS;
  if (ROWS == 0 && busy) {
    rows = chunks.at[entry + 3] & 255;
    cols = chunks.at[entry + 3] >> 8;
    busy = row < rows;
  }
  accumulator s = sum_zero();
  if (busy) {
    const uint end = chunks.at[entry + 1];
    for (uint k = chunks.at[entry] + part; k < end; k += PARALLEL) {
      const uint code = item_scalar.at[k], block = item_block.at[k];
      const uint scalar = code & 0x7fffffffu;
      const bool transposed = code != scalar;
      const uint start = transposed ? row * cols : row, step = transposed ? 1 : rows;
      [[unroll]] for (uint c = 0; c < cols; ++c) s = add_product(s, AT(values, block, start + c * step), x.at[scalar + c]);
    }
  }
  scratch[LANE] = s;
  for (uint n = PARALLEL; n > 1; n = (n + 1) / 2) {  // n parts are left; halve them
    const uint half_n = (n + 1) / 2;
    barrier();
    if (part + half_n < n && slot < SLOTS) {
      scratch[LANE] = merge(scratch[LANE], scratch[LANE + half_n * LANE_ROWS]);
    }
  }
  // The part 0 of a row wrote its own entry last: no barrier before it reads it.
  if (busy && part == 0) partial.at[chunks.at[entry + 2] + row] = scratch[LANE];
}
