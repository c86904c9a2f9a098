#version 450
// One chunk of a block of the Schur complement, as schur_pairs, for blocks of one shape, ROWS x COLS x DIM:
//   S_ij = H_ij + D_ij - sum over landmarks l seen by both of W_il H_ll^-1 W_jl'
// A workgroup brings PAIRS = SLOTS * PARALLEL pairs at a time into shared memory, so that consecutive invocations read
// consecutive scalars. TEAM = ceil(ROWS / 3) invocations take a pair, each three rows of the product, in registers.
// SLOTS chunks share the workgroup, PARALLEL pairs of each run at a time and are merged in a fixed order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 9
#include "common.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
layout(constant_id = 3) const uint DIM = 3;
layout(constant_id = 4) const uint PARALLEL = 4;
layout(constant_id = 5) const uint SLOTS = 4;
layout(constant_id = 6) const uint SAME = 0;  // 1: W_jl is W_il in every pair (diagonal blocks), and read once
#include "schur_chunks.glsl"

const uint TILE = 3;
const uint TEAM = (ROWS + TILE - 1) / TILE;
const uint LANES = TEAM * PARALLEL;
const uint PAIRS = SLOTS * PARALLEL;
const uint LEFT = TEAM * TILE * DIM, RIGHT = COLS * DIM, MIDDLE = DIM * DIM;  // scalars of a pair; rows padded with 0
const uint PANELS = (COLS + TILE - 1) / TILE;
shared real left_stage[PAIRS * LEFT];
shared real right_stage[SAME != 0 ? 1 : PAIRS * RIGHT];
shared real middle_stage[PAIRS * MIDDLE];
shared uint left_at[PAIRS], right_at[PAIRS], middle_at[PAIRS];
shared uint begins[SLOTS], ends[SLOTS];
shared accumulator scratch[TILE * TILE * WORKGROUP_SIZE];

const uint LEFT_LOADS = (PAIRS * LEFT + WORKGROUP_SIZE - 1) / WORKGROUP_SIZE;
const uint RIGHT_LOADS = SAME != 0 ? 1 : (PAIRS * RIGHT + WORKGROUP_SIZE - 1) / WORKGROUP_SIZE;
const uint MIDDLE_LOADS = (PAIRS * MIDDLE + WORKGROUP_SIZE - 1) / WORKGROUP_SIZE;
uvec3 offsets;  // of the pair whose offsets this invocation brings
real left_held[LEFT_LOADS], right_held[RIGHT_LOADS], middle_held[MIDDLE_LOADS];  // on their way to the stage

void load_offsets(uint step) {
  offsets = uvec3(NOTHING);
  if (LANE >= PAIRS) return;
  const uint k = begins[LANE / PARALLEL] + step * PARALLEL + LANE % PARALLEL;
  if (k < ends[LANE / PARALLEL]) offsets = uvec3(pair_left.at[k], pair_right.at[k], pair_inverse.at[k]);
}

void share_offsets() {
  if (LANE >= PAIRS) return;
  left_at[LANE] = offsets.x;
  right_at[LANE] = offsets.y;
  middle_at[LANE] = offsets.z;
}

// What is not there is read from the start of the buffer and not used.
void load_pairs() {
  [[unroll]] for (uint n = 0; n < LEFT_LOADS; ++n) {
    const uint i = min(LANE + n * WORKGROUP_SIZE, PAIRS * LEFT - 1), at = left_at[i / LEFT];
    const uint row = i % LEFT % (TEAM * TILE), col = i % LEFT / (TEAM * TILE);
    left_held[n] = AT(values, at != NOTHING ? at : 0, row < ROWS ? row + ROWS * col : 0);
  }
  [[unroll]] for (uint n = 0; n < RIGHT_LOADS; ++n) {
    const uint i = min(LANE + n * WORKGROUP_SIZE, PAIRS * RIGHT - 1), at = right_at[i / RIGHT];
    if (SAME == 0) right_held[n] = AT(values, at != NOTHING ? at : 0, i % RIGHT);
  }
  [[unroll]] for (uint n = 0; n < MIDDLE_LOADS; ++n) {
    const uint i = min(LANE + n * WORKGROUP_SIZE, PAIRS * MIDDLE - 1), at = middle_at[i / MIDDLE];
    middle_held[n] = AT(inverse, at != NOTHING ? at : 0, at != NOTHING ? i % MIDDLE : 0);
  }
}

void share_pairs() {
  [[unroll]] for (uint n = 0; n < LEFT_LOADS; ++n) {
    const uint i = LANE + n * WORKGROUP_SIZE;
    if (i < PAIRS * LEFT) left_stage[i] = left_held[n];
  }
  [[unroll]] for (uint n = 0; n < RIGHT_LOADS; ++n) {
    const uint i = LANE + n * WORKGROUP_SIZE;
    if (SAME == 0 && i < PAIRS * RIGHT) right_stage[i] = right_held[n];
  }
  [[unroll]] for (uint n = 0; n < MIDDLE_LOADS; ++n) {
    const uint i = LANE + n * WORKGROUP_SIZE;
    if (i < PAIRS * MIDDLE) middle_stage[i] = middle_held[n];
  }
}

accumulator tile[TILE * COLS];  // of this invocation: three rows of S_ij, column-major

// Row q of W_jl, column c.
real right(uint pair, uint q, uint c) {
  return SAME != 0 ? left_stage[pair * LEFT + q + TEAM * TILE * c] : right_stage[pair * RIGHT + q + COLS * c];
}

void add_pair(uint pair, uint row0) {
  real w[TILE * DIM];  // the three rows of W_il H_ll^-1
  [[unroll]] for (uint c = 0; c < DIM; ++c) {
    [[unroll]] for (uint r = 0; r < TILE; ++r) w[r + TILE * c] = ZERO;
    [[unroll]] for (uint m = 0; m < DIM; ++m) {
      const real h = middle_stage[pair * MIDDLE + m + DIM * c];
      [[unroll]] for (uint r = 0; r < TILE; ++r) {
        w[r + TILE * c] += left_stage[pair * LEFT + row0 + r + TEAM * TILE * m] * h;
      }
    }
  }
  [[unroll]] for (uint q = 0; q < COLS; ++q) {
#if defined(GRAPHOPT_DOUBLE)
    [[unroll]] for (uint c = 0; c < DIM; ++c) {
      const real v = right(pair, q, c);
      [[unroll]] for (uint r = 0; r < TILE; ++r) tile[r + TILE * q] = add_product(tile[r + TILE * q], w[r + TILE * c], v);
    }
#else  // one term per pair goes into the two-float sum: its own rounding is that of w
    real term[TILE];
    [[unroll]] for (uint r = 0; r < TILE; ++r) term[r] = ZERO;
    [[unroll]] for (uint c = 0; c < DIM; ++c) {
      const real v = right(pair, q, c);
      [[unroll]] for (uint r = 0; r < TILE; ++r) term[r] += w[r + TILE * c] * v;
    }
    [[unroll]] for (uint r = 0; r < TILE; ++r) tile[r + TILE * q] = add(tile[r + TILE * q], term[r]);
#endif
  }
}

void main() {
  const uint slot = LANE / LANES, lane = LANE % LANES, team = LANE % TEAM;
  const uint chunk = WORKGROUP * SLOTS + slot;
  const uint entry = 6 * (push.first_chunk + chunk);
  const bool busy = slot < SLOTS && chunk < push.num_chunks;
  if (LANE < SLOTS) {
    const uint mine = WORKGROUP * SLOTS + LANE, at = 6 * (push.first_chunk + mine);
    begins[LANE] = mine < push.num_chunks ? chunks.at[at] : 0;
    ends[LANE] = mine < push.num_chunks ? chunks.at[at + 1] : 0;
  }
  [[unroll]] for (uint e = 0; e < TILE * COLS; ++e) tile[e] = sum_zero();
  barrier();
  uint longest = 0;
  for (uint s = 0; s < SLOTS; ++s) longest = max(longest, ends[s] - begins[s]);
  load_offsets(0);
  for (uint step = 0; step * PARALLEL < longest; ++step) {
    share_offsets();
    barrier();
    load_pairs();
    load_offsets(step + 1);
    share_pairs();
    const uint pair = slot * PARALLEL + lane / TEAM;
    const bool there = busy && left_at[pair] != NOTHING;
    barrier();
    if (there) add_pair(pair, TILE * team);
  }
  uint target = 0, block = NOTHING, diagonal = NOTHING;
  if (busy) {
    target = chunks.at[entry + 2];
    block = chunks.at[entry + 3];
    diagonal = chunks.at[entry + 4];
  }
  [[unroll]] for (uint panel = 0; panel < PANELS; ++panel) {  // three columns at a time
    barrier();
    [[unroll]] for (uint e = 0; e < TILE * TILE; ++e) {
      if (TILE * panel + e / TILE < COLS) scratch[e * WORKGROUP_SIZE + LANE] = tile[TILE * TILE * panel + e];
    }
    barrier();
    for (uint e = lane; busy && e < TILE * TILE * TEAM; e += LANES) {
      const uint row = e % (TILE * TEAM), col = TILE * panel + e / (TILE * TEAM);
      if (row >= ROWS || col >= COLS) continue;
      const uint source = (row % TILE + TILE * (col - TILE * panel)) * WORKGROUP_SIZE + slot * LANES + row / TILE;
      accumulator s = scratch[source];
      for (uint p = 1; p < PARALLEL; ++p) s = merge(s, scratch[source + p * TEAM]);
      write_sum(target, block, diagonal, row, col, ROWS, s);
    }
  }
}
