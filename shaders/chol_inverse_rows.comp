#version 450
// Selected inverse, columns `start` up to `last` of W = [I; L21] L11^-1 of every front of a level, 64 rows per workgroup
// and one per invocation, by blocks of 32 columns from the last to the first:
//   W_b = ([I; L21]_b - sum over later blocks k of W_k L_kb) L_bb^-1
// Of columns from `last` on chol_update has put minus the sum where W_b will be. Rows before `start` are zeros.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint start; uint last;)
INPUT(0, uint, list)  // (front, tile of 64 rows from `start` on, offset of W)
INPUT(1, uint, fronts)
LARGE_INPUT(2, factor)
GRAPHOPT_LARGE(restrict, 3, solved)  // W: f x n, column-major

// 64 invocations
const uint SIZE = 64, CHUNK = 8;
shared real tile[BLOCK * BLOCK];  // of L, by columns
real row[BLOCK];                  // of W_b

void load_tile(Front f, uint first_row, uint first_col) {
  barrier();
  for (uint e = LANE; e < BLOCK * BLOCK; e += SIZE) {
    const uint r = first_row + e % BLOCK, c = first_col + e / BLOCK;
    tile[e] = r < f.n && c < f.n ? AT(factor, f.factor, c * f.f + r) : ZERO;
  }
  barrier();
}

void main() {
  const uint entry = push.first + 3 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint own = push.start + SIZE * list.at[entry + 1] + LANE, end = min(push.last, f.n), base = list.at[entry + 2];
  for (uint block = (end - push.start + BLOCK - 1) / BLOCK; block > 0; --block) {
    const uint column = push.start + BLOCK * (block - 1);
    [[unroll]] for (uint c = 0; c < BLOCK; ++c) {
      const bool is_below = own >= f.n && own < f.f && column + c < f.n;
      row[c] = is_below ? AT(factor, f.factor, (column + c) * f.f + own) : own == column + c ? ONE : ZERO;
      if (own >= push.last && own < f.f && push.last < f.n) row[c] += AT(solved, base, (column + c) * f.f + own);
    }
    for (uint later = column + BLOCK; later < end; later += BLOCK) {
      load_tile(f, later, column);
      for (uint chunk = later; chunk < later + BLOCK; chunk += CHUNK) {
        real left[CHUNK];
        [[unroll]] for (uint k = 0; k < CHUNK; ++k) {
          left[k] = chunk + k < end && own < f.f ? AT(solved, base, (chunk + k) * f.f + own) : ZERO;
        }
        [[unroll]] for (uint k = 0; k < CHUNK; ++k) {
          [[unroll]] for (uint c = 0; c < BLOCK; ++c) row[c] -= left[k] * tile[c * BLOCK + chunk - later + k];
        }
      }
    }
    load_tile(f, column, column);
    [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
      const uint c = BLOCK - 1 - j;
      if (column + c < f.n) {
        const real value_at = row[c] / tile[c * BLOCK + c];
        if (own < f.f) AT(solved, base, (column + c) * f.f + own) = value_at;
        [[unroll]] for (uint i = 0; i < c; ++i) row[i] -= value_at * tile[i * BLOCK + c];
      }
    }
  }
}
