#version 450
// u_l = sign * H_ll^-1 (base_l - sum_k W_k' x_k) over the H_pl blocks W_k (rows x DIM) in the column of landmark l.
//   base = b_l, x = dx_p, sign = +: back-substitution.   base = 0, x = d, sign = +: minus the landmark half of the
//   implicit product H_pl H_ll^-1 H_pl' d.   PRODUCT = 0: u = H_ll^-1 base without touching W.
// A workgroup takes a tile of whole landmarks (at most WORKGROUP_SIZE scalars; one landmark may have any number of
// blocks). Pass 1, one invocation per (block, column): a dot product into shared memory. Pass 2, one per (landmark,
// column): the sum over its blocks in order. Then H_ll^-1. No atomics, no assumption on the subgroup size.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 11
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint DIM = 3;
layout(constant_id = 2) const uint ROWS = 0;      // rows of every W, 0: look them up in item_rows
layout(constant_id = 3) const uint PRODUCT = 1;
layout(constant_id = 4) const uint HAS_BASE = 1;
layout(constant_id = 5) const uint CAPACITY = 256;  // blocks per pass
PARAMETERS(uint first_tile; uint num_tiles; uint ping_pong;)  // PRODUCT = 0: first landmark, number of landmarks
INPUT(0, uint, tiles)           // (num_tiles + 1,): first landmark; one past the end of each group of equal DIM follows
INPUT(1, uint, landmark_items)  // (num_landmarks + 1,): first item
INPUT(2, uint, landmarks)       // (num_landmarks, 2): first scalar in vectors, offset of H_ll^-1
INPUT(3, uint, item_block)      // (num_items,): offset of W in values
INPUT(4, uint, item_scalar)     // (num_items,): first scalar of the kept vertex
LARGE_INPUT(5, values)
LARGE_INPUT(6, inverse)
INPUT(7, real, base)            // (dim,), unread where HAS_BASE = 0
INOUT(8, real, vector)          // (dim,): x in its kept part, u in its landmark part
INPUT(9, uint, status)
INPUT(10, uint, item_rows)      // (num_items,): rows of W; unread where ROWS is given
layout(constant_id = 6) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients

shared accumulator products[PRODUCT != 0 ? CAPACITY * DIM : 1];
shared real totals[WORKGROUP_SIZE];

accumulator column_product(uint item, uint column) {
  const uint block = item_block.at[item], scalar = item_scalar.at[item];
  accumulator s = sum_zero();
  if (ROWS != 0) {
    [[unroll]] for (uint r = 0; r < ROWS; ++r) s = add_product(s, AT(values, block, column * ROWS + r), vector.at[scalar + r]);
  } else {
    const uint rows = item_rows.at[item];
    for (uint r = 0; r < rows; ++r) s = add_product(s, AT(values, block, column * rows + r), vector.at[scalar + r]);
  }
  return s;
}

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  uint first, last;
  if (PRODUCT != 0) {
    if (WORKGROUP >= push.num_tiles) return;
    first = tiles.at[push.first_tile + WORKGROUP];
    last = tiles.at[push.first_tile + WORKGROUP + 1];
  } else {
    first = push.first_tile + WORKGROUP * (WORKGROUP_SIZE / DIM);
    last = min(first + WORKGROUP_SIZE / DIM, push.first_tile + push.num_tiles);
  }
  const uint mine = first + LANE / DIM, column = LANE % DIM;
  const bool busy = mine < last;
  accumulator total = sum_zero();
  if (PRODUCT != 0) {
    const uint begin = landmark_items.at[first], end = landmark_items.at[last];
    uint my_begin = 0, my_end = 0;
    if (busy) {
      my_begin = landmark_items.at[mine];
      my_end = landmark_items.at[mine + 1];
    }
    for (uint pass = begin; pass < end; pass += CAPACITY) {
      const uint pass_end = min(pass + CAPACITY, end);
      for (uint i = LANE; i < (pass_end - pass) * DIM; i += WORKGROUP_SIZE) {
        products[i] = column_product(pass + i / DIM, i % DIM);
      }
      barrier();
      for (uint k = max(my_begin, pass); k < min(my_end, pass_end); ++k) {
        total = merge(total, products[(k - pass) * DIM + column]);
      }
      barrier();
    }
  }
  uint scalar = 0;
  if (busy) {
    scalar = landmarks.at[2 * mine];
    totals[LANE] = HAS_BASE != 0 ? base.at[scalar + column] - value(total) : -value(total);
  }
  barrier();
  if (busy) {
    const uint block = landmarks.at[2 * mine + 1];
    accumulator s = sum_zero();
    for (uint c = 0; c < DIM; ++c) {
      s = add_product(s, AT(inverse, block, column + DIM * c), totals[LANE - column + c]);
    }
    vector.at[scalar + column] = value(s);
  }
}
