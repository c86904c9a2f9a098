#version 450
// One chunk of a block row of a sparse product: partial_c = sum over items k of chunk c of op(B_k) x_k, where op is
// the identity or the transpose (symmetric matrices store their upper triangle only).
// Binned by ROWS x COLS: an invocation takes one entry (row, col) of op(B_k) for every PARALLEL-th item, so that
// consecutive invocations read consecutive scalars, AHEAD items in flight. What is rare goes into one bin with ROWS =
// COLS = 0, whose chunks carry their dimensions and whose invocations take a row. WORKGROUP_SIZE / LANES chunks share
// a workgroup. The sums of columns and items are merged in a fixed order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
layout(constant_id = 3) const uint PARALLEL = 4;
layout(constant_id = 4) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
PARAMETERS(uint first_chunk; uint num_chunks; uint parity;)
INPUT(0, uint, chunks)          // (num_chunks_of_all_bins, 4): first item, one past the last, first entry of partial,
                                // rows + 256 * cols
INPUT(1, uint, item_block)      // (num_items,): offset of B in values
INPUT(2, uint, item_scalar)     // (num_items,): first scalar in x; bit 31: transposed
LARGE_INPUT(3, values)
INPUT(4, real, x)
OUTPUT(5, accumulator, partial)
INPUT(6, uint, status)

const uint LANE_ROWS = ROWS != 0 ? ROWS : MAX_DIM;
const uint LANE_COLS = ROWS != 0 ? COLS : 1;
const uint AREA = LANE_ROWS * LANE_COLS;
const uint LANES = AREA * PARALLEL;
const uint SLOTS = WORKGROUP_SIZE / LANES;
const uint AHEAD = 4;
shared accumulator scratch[WORKGROUP_SIZE];

// Entry (row, col) of op(B) times x, over every PARALLEL-th item of [k, end).
accumulator entry_sum(uint k, uint end, uint row, uint col) {
  accumulator s = sum_zero();
  for (; k < end; k += AHEAD * PARALLEL) {
    uint block[AHEAD], code[AHEAD];
    real b[AHEAD], v[AHEAD];
    [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
      const uint item = min(k + n * PARALLEL, end - 1);
      block[n] = item_block.at[item];
      code[n] = item_scalar.at[item];
    }
    [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
      const uint scalar = code[n] & 0x7fffffffu;
      b[n] = AT(values, block[n], code[n] != scalar ? row * COLS + col : row + ROWS * col);
      v[n] = x.at[scalar + col];
    }
    [[unroll]] for (uint n = 0; n < AHEAD; ++n) {
      if (k + n * PARALLEL < end) s = add_product(s, b[n], v[n]);
    }
  }
  return s;
}

// A row of op(B) times x, over every PARALLEL-th item of [k, end), for blocks of any dimensions.
accumulator row_sum(uint k, uint end, uint row, uint rows, uint cols) {
  accumulator s = sum_zero();
  for (; k < end; k += PARALLEL) {
    const uint code = item_scalar.at[k], block = item_block.at[k];
    const uint scalar = code & 0x7fffffffu;
    const bool transposed = code != scalar;
    const uint start = transposed ? row * cols : row, step = transposed ? 1 : rows;
    for (uint c = 0; c < cols; ++c) s = add_product(s, AT(values, block, start + c * step), x.at[scalar + c]);
  }
  return s;
}

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.parity] != 0) return;
  const uint slot = LANE / LANES, lane = LANE % LANES, row = lane % LANE_ROWS, part = lane / LANE_ROWS;
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
    const uint first = chunks.at[entry] + part / LANE_COLS, end = chunks.at[entry + 1];
    if (ROWS != 0) {
      s = entry_sum(first, end, row, part % LANE_COLS);
    } else {
      s = row_sum(first, end, row, rows, cols);
    }
  }
  scratch[LANE] = s;
  for (uint n = PARALLEL * LANE_COLS; n > 1; n = (n + 1) / 2) {  // n sums of a row are left; halve them
    const uint half_n = (n + 1) / 2;
    barrier();
    if (part + half_n < n && slot < SLOTS) {
      scratch[LANE] = merge(scratch[LANE], scratch[LANE + half_n * LANE_ROWS]);
    }
  }
  // The first of a row wrote its own entry last: no barrier before it reads it.
  if (busy && part == 0) partial.at[chunks.at[entry + 2] + row] = scratch[LANE];
}
