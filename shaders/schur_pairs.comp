#version 450
// One chunk of a block of the Schur complement: S_ij = H_ij + D_ij - sum over landmarks l seen by both of
//   W_il H_ll^-1 W_jl'    (W: H_pl blocks, ROWS x DIM and COLS x DIM, column-major)
// from a work queue sorted by destination. An invocation holds a 3 x 3 tile of S_ij; ceil(ROWS/3) *
// ceil(COLS/3) of them take a pair, PARALLEL pairs run at a time, merged in a fixed order. H_pl H_ll^-1 is
// recomputed, never stored. Binned by ROWS x COLS x DIM; what is rare goes into one bin with all three 0, whose
// chunks carry their dimensions. Chunks that are a whole block write S; longer queues are split, their parts go
// to `partial` for schur_combine.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 9
#include "common.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint ROWS = 6;
layout(constant_id = 2) const uint COLS = 6;
layout(constant_id = 3) const uint DIM = 3;
layout(constant_id = 4) const uint PARALLEL = 4;
#include "schur_chunks.glsl"
uint rows = ROWS, cols = COLS, dim = DIM;  // of this invocation's chunk
#include "schur_tile.glsl"

const uint TILE_ROWS = ((ROWS != 0 ? ROWS : MAX_DIM) + TILE - 1) / TILE;
const uint TILE_COLS = ((COLS != 0 ? COLS : MAX_DIM) + TILE - 1) / TILE;
const uint TEAM = TILE_ROWS * TILE_COLS;
const uint LANES = TEAM * PARALLEL;
const uint SLOTS = WORKGROUP_SIZE / LANES;
shared accumulator scratch[9 * WORKGROUP_SIZE];

void main() {
  const uint slot = LANE / LANES, part = (LANE % LANES) / TEAM, team = LANE % TEAM;
  const uint row0 = TILE * (team % TILE_ROWS), col0 = TILE * (team / TILE_ROWS);
  const uint chunk = WORKGROUP * SLOTS + slot;
  const uint entry = 6 * (push.first_chunk + chunk);
  bool busy = slot < SLOTS && chunk < push.num_chunks;
  if (ROWS == 0 && busy) {
    const uint dims = chunks.at[entry + 5];
    rows = dims & 255;
    cols = dims >> 8 & 255;
    dim = dims >> 16;
    busy = row0 < rows && col0 < cols;
  }
  accumulator tile[9];
  [[unroll]] for (uint e = 0; e < 9; ++e) tile[e] = sum_zero();
  if (busy) {
    const uint end = chunks.at[entry + 1];
    for (uint k = chunks.at[entry] + part; k < end; k += PARALLEL) {
      add_pair(tile, pair_left.at[k], pair_right.at[k], pair_inverse.at[k], row0, col0);
    }
  }
  [[unroll]] for (uint e = 0; e < 9; ++e) scratch[e * WORKGROUP_SIZE + LANE] = tile[e];
  for (uint n = PARALLEL; n > 1; n = (n + 1) / 2) {  // n parts are left; halve them
    const uint half_n = (n + 1) / 2;
    barrier();
    if (part + half_n < n && slot < SLOTS) {
      for (uint at = LANE; at < 9 * WORKGROUP_SIZE; at += WORKGROUP_SIZE) {
        scratch[at] = merge(scratch[at], scratch[at + half_n * TEAM]);
      }
    }
  }
  // Part 0 wrote its own entries last: no barrier before it reads them.
  if (!busy || part != 0) return;
  const uint target = chunks.at[entry + 2], block = chunks.at[entry + 3], diagonal = chunks.at[entry + 4];
  [[unroll]] for (uint e = 0; e < 9; ++e) {
    const uint row = row0 + e % TILE, col = col0 + e / TILE;
    if (row >= rows || col >= cols) continue;
    write_sum(target, block, diagonal, row, col, rows, scratch[e * WORKGROUP_SIZE + LANE]);
  }
}
