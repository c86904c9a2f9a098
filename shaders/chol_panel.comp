#version 450
// One block of up to 32 columns of large fronts, 64 rows per workgroup, columns before `panel` being done:
//   T = A(rows, block) - L(rows, panel .. block) S L(block, panel .. block)',   T11 = L11 S L11',   L21 = T21 L11^-T S
// Every workgroup factors T11 itself (rows 0 .. 31 of its tile, its own rows follow), so no other dispatch is needed;
// the first one of a front leaves L11 in `diagonals`, since the others still read the matrix there.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint column; uint panel; uint num_pivots;)
INPUT(0, uint, list)        // (front, tile of 64 rows below the block, first entry of the front in `diagonals`)
INPUT(1, uint, fronts)
GRAPHOPT_LARGE(restrict, 2, factor)
INOUT(3, real, diagonals)   // 32 per pivot: column-major blocks
INPUT(4, real, thresholds)
INOUT(5, real, signs)
INOUT(6, uint, status)

// 128 invocations, of which 96 have a row of the tile
const uint ROWS = 64, ALL = BLOCK + ROWS, DEPTH = 16, LINE = ALL + 1;
const uint PER_ROW = ALL / 16, PER_COL = BLOCK / 8, LOADS = ALL * DEPTH / 128;
shared real area[BLOCK * LINE];  // DEPTH columns of operands, then the tile, both by columns
shared real scale[BLOCK], root[BLOCK], limits[BLOCK];
#define COLUMNS 32
#define COLUMN(c) ((c) * LINE)
#include "chol_eliminate.glsl"

real next[LOADS];

void fetch(Front f, uint width, uint first_row, uint depth) {
  [[unroll]] for (uint q = 0; q < LOADS; ++q) {
    const uint e = LANE + 128 * q, i = e % ALL, k = e / ALL;
    const uint row = i < BLOCK ? push.column + i : first_row + i - BLOCK;
    const bool inside = i < BLOCK ? i < width : row < f.f;
    next[q] = inside ? AT(factor, f.factor, (depth + k) * f.f + row) : ZERO;
  }
}

void main() {
  const uint entry = push.first + 3 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row_tile = list.at[entry + 1], slot = list.at[entry + 2];
  const uint width = min(BLOCK, f.n - push.column);
  const uint first_row = push.column + width + ROWS * row_tile;
  if (LANE < width) limits[LANE] = thresholds.at[f.first_pivot + push.column + LANE];
  const uint ry = LANE % 16, cx = LANE / 16;
  real sum[PER_ROW][PER_COL];
  [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
    [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] = ZERO;
  }
  if (push.panel < push.column) fetch(f, width, first_row, push.panel);
  for (uint depth = push.panel; depth < push.column; depth += DEPTH) {
    barrier();
    [[unroll]] for (uint q = 0; q < LOADS; ++q) {
      const uint e = LANE + 128 * q;
      area[e / ALL * LINE + e % ALL] = next[q];
    }
    barrier();
    if (depth + DEPTH < push.column) fetch(f, width, first_row, depth + DEPTH);
    for (uint k = 0; k < DEPTH; ++k) {
      real a[PER_ROW], b[PER_COL];
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) a[i] = area[k * LINE + ry + 16 * i];
      [[unroll]] for (uint j = 0; j < PER_COL; ++j) b[j] = area[k * LINE + cx + 8 * j];
      if (SIGNED != 0) {
        const real sgn = signs.at[f.first_pivot + depth + k];
        [[unroll]] for (uint j = 0; j < PER_COL; ++j) b[j] *= sgn;
      }
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
        [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] += a[i] * b[j];
      }
    }
  }
  barrier();
  [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
    [[unroll]] for (uint j = 0; j < PER_COL; ++j) {
      const uint r = ry + 16 * i, c = cx + 8 * j;
      const uint row = r < BLOCK ? push.column + r : first_row + r - BLOCK;
      real entry_value = ZERO;
      if (c < width && (r < BLOCK ? r >= c && r < width : row < f.f)) {
        entry_value = AT(factor, f.factor, (push.column + c) * f.f + row) - sum[i][j];
      }
      area[c * LINE + r] = entry_value;
    }
  }
  barrier();
  eliminate(ALL, width, width);
  take_pivots(f.first_pivot + push.column, width, row_tile == 0);
  for (uint e = LANE; e < ROWS * width; e += 128) {
    const uint row = first_row + e % ROWS, c = e / ROWS;
    if (row < f.f) AT(factor, f.factor, (push.column + c) * f.f + row) = area[c * LINE + BLOCK + e % ROWS] * scale[c];
  }
  if (row_tile != 0) return;
  for (uint e = LANE; e < BLOCK * width; e += 128) {
    const uint r = e % BLOCK, c = e / BLOCK;
    const real entry_value = r == c ? root[c] : area[c * LINE + r] * scale[c];
    diagonals.at[BLOCK * (slot + push.column + c) + r] = entry_value;
  }
}
