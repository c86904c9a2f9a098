#version 450
// The Schur complement without work queues: S_ij = H_ij + D_ij - sum over common landmarks of W_il H_ll^-1
// W_jl', where the common landmarks are found here, each time, by walking the landmark lists of i and j. A
// workgroup per block; PARALLEL teams take equal shares of i's list and start in j's list by bisection. An
// invocation holds a 3 x 3 tile, the teams' sums are merged in a fixed order. A launch takes blocks of one shape.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 9
#include "common.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint DIM = 3;
layout(constant_id = 3) const uint PARALLEL = 4;
layout(constant_id = 4) const uint COLS = 6;
PARAMETERS(uint first_block; uint end_block;)
INPUT(0, uint, blocks)          // (num_blocks, 5): i, j, H block, damping, place in schur; NOTHING: none
INPUT(1, uint, row_items)       // (num_kept + 1,)
INPUT(2, uint, entry_landmark)  // (num_items,): landmarks of a vertex, ascending
INPUT(3, uint, entry_block)     // (num_items,)
INPUT(4, uint, inverse_offset)  // (num_landmarks,)
LARGE_INPUT(5, values)
LARGE_INPUT(6, inverse)
INPUT(7, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
LARGE_OUTPUT(8, schur)

const uint rows = ROWS, cols = COLS, dim = DIM;
#include "schur_tile.glsl"
const uint SIDE = (ROWS + TILE - 1) / TILE, TEAM = SIDE * ((COLS + TILE - 1) / TILE);
shared accumulator scratch[9 * WORKGROUP_SIZE];

// First entry of [begin, end) whose landmark is not below `landmark`.
uint bisect(uint begin, uint end, uint landmark) {
  while (begin < end) {
    const uint middle = (begin + end) / 2;
    if (entry_landmark.at[middle] < landmark) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

void main() {
  const uint block = push.first_block + WORKGROUP;
  if (block >= push.end_block) return;
  const uint part = LANE / TEAM, team = LANE % TEAM;
  const uint row0 = TILE * (team % SIDE), col0 = TILE * (team / SIDE);
  accumulator tile[9];
  [[unroll]] for (uint e = 0; e < 9; ++e) tile[e] = sum_zero();
  if (part < PARALLEL) {
    const uint i = blocks.at[5 * block], j = blocks.at[5 * block + 1];
    const uint first = row_items.at[i], length = row_items.at[i + 1] - first, b_end = row_items.at[j + 1];
    uint a = first + length * part / PARALLEL;
    const uint a_end = first + length * (part + 1) / PARALLEL;
    uint b = a < a_end ? bisect(row_items.at[j], b_end, entry_landmark.at[a]) : b_end;
    while (a < a_end && b < b_end) {
      const uint la = entry_landmark.at[a], lb = entry_landmark.at[b];
      if (la == lb) add_pair(tile, entry_block.at[a], entry_block.at[b], inverse_offset.at[la], row0, col0);
      if (la <= lb) ++a;
      if (lb <= la) ++b;
    }
  }
  [[unroll]] for (uint e = 0; e < 9; ++e) scratch[e * WORKGROUP_SIZE + LANE] = tile[e];
  for (uint n = PARALLEL; n > 1; n = (n + 1) / 2) {
    const uint half_n = (n + 1) / 2;
    barrier();
    if (part + half_n < n) {
      for (uint at = LANE; at < 9 * WORKGROUP_SIZE; at += WORKGROUP_SIZE) {
        scratch[at] = merge(scratch[at], scratch[at + half_n * TEAM]);
      }
    }
  }
  if (part != 0) return;
  const uint h_block = blocks.at[5 * block + 2], diagonal = blocks.at[5 * block + 3], to = blocks.at[5 * block + 4];
  [[unroll]] for (uint e = 0; e < 9; ++e) {
    const uint row = row0 + e % TILE, col = col0 + e / TILE;
    if (row >= ROWS || col >= COLS) continue;
    const uint element = row + ROWS * col;
    real h = h_block == NOTHING ? ZERO : AT(values, h_block, element);
    if (diagonal != NOTHING && row == col) h += damping_of(diagonal + row);
    AT(schur, to, element) = h - value(scratch[e * WORKGROUP_SIZE + LANE]);
  }
}
