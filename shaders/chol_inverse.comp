#version 450
// Selected inverse (Takahashi, Fagan and Chen 1973, by fronts): Z = the inverse restricted to a front's rows, from the
// roots down, a tile of 32 x 32 per workgroup.
//   STAGE 0: Z22 = the parent's Z at these rows;  Z21 = -Z22 W2,  Z12 = Z21'
//   STAGE 1: Z11 = W1' S W1 - W2' Z21
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint STAGE = 0;
PARAMETERS(uint first;)
INPUT(0, uint, list)  // (front, tile row | tile column << 16, offset of W, of Z, of the parent's Z, the parent)
INPUT(1, uint, fronts)
INPUT(2, uint, parent_row)
INPUT(3, real, signs)
LARGE_INPUT(4, solved)
LARGE_INPUT(5, above)     // Z of the level above
GRAPHOPT_LARGE(restrict, 6, inverse)   // Z: f x f, column-major, both triangles

// 64 invocations
const uint TILE = 32, DEPTH = 16, LINE = TILE + 1, SIZE = 64, PER = TILE / 8;
shared real left[DEPTH * LINE], right[DEPTH * LINE];

void main() {
  const uint entry = push.first + 6 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row_tile = list.at[entry + 1] & 0xffff, col_tile = list.at[entry + 1] >> 16;
  const uint w = list.at[entry + 2], z = list.at[entry + 3], zp = list.at[entry + 4];
  const uint fp = STAGE == 0 && f.m > 0 ? fronts.at[FRONT_SIZE * list.at[entry + 5] + 1] + fronts.at[FRONT_SIZE * list.at[entry + 5] + 2] : 0;
  const uint blocks = (f.n + TILE - 1) / TILE;  // stage 0: tile columns of Z21, those of Z22 follow
  const uint first_row = TILE * row_tile + (STAGE == 0 ? f.n : 0);
  if (STAGE == 0 && col_tile >= blocks) {
    for (uint e = LANE; e < TILE * TILE; e += SIZE) {
      const uint r = first_row + e % TILE, c = f.n + TILE * (col_tile - blocks) + e / TILE;
      if (r >= f.f || c >= f.f) continue;
      const uint from = parent_row.at[f.rows + c - f.n] * fp + parent_row.at[f.rows + r - f.n];
      AT(inverse, z, c * f.f + r) = AT(above, zp, from);
    }
    return;
  }
  const uint first_col = TILE * col_tile;
  const uint depth_end = STAGE == 0 ? f.m : f.f, begin = STAGE == 0 ? 0 : TILE * row_tile;
  const uint last_row = STAGE == 0 ? f.f : f.n;
  const uint ry = LANE % 8, cx = LANE / 8;
  real sum[PER][PER];
  [[unroll]] for (uint i = 0; i < PER; ++i) {
    [[unroll]] for (uint j = 0; j < PER; ++j) sum[i][j] = ZERO;
  }
  for (uint depth = begin; depth < depth_end; depth += DEPTH) {
    barrier();
    for (uint e = LANE; e < DEPTH * TILE; e += SIZE) {
      real a = ZERO, b = ZERO;
      if (STAGE == 0) {
        const uint i = e % TILE, k = e / TILE, row = first_row + i;
        if (row < f.f && depth + k < f.m) {
          const uint from = parent_row.at[f.rows + depth + k] * fp + parent_row.at[f.rows + row - f.n];
          a = -AT(above, zp, from);
        }
        left[k * LINE + i] = a;
        const uint kb = e % DEPTH, j = e / DEPTH;
        if (depth + kb < f.m && first_col + j < f.n) b = AT(solved, w, (first_col + j) * f.f + f.n + depth + kb);
        right[kb * LINE + j] = b;
      } else {
        const uint k = e % DEPTH, i = e / DEPTH, row = depth + k;
        if (row < f.f && first_row + i < f.n) a = AT(solved, w, (first_row + i) * f.f + row);
        if (SIGNED != 0 && row < f.n) a *= signs.at[f.first_pivot + row];
        left[k * LINE + i] = a;
        if (row < f.f && first_col + i < f.n) {
          b = row < f.n ? AT(solved, w, (first_col + i) * f.f + row) : -AT(inverse, z, (first_col + i) * f.f + row);
        }
        right[k * LINE + i] = b;
      }
    }
    barrier();
    for (uint k = 0; k < DEPTH; ++k) {
      real a[PER], b[PER];
      [[unroll]] for (uint i = 0; i < PER; ++i) a[i] = left[k * LINE + ry + 8 * i];
      [[unroll]] for (uint j = 0; j < PER; ++j) b[j] = right[k * LINE + cx + 8 * j];
      [[unroll]] for (uint i = 0; i < PER; ++i) {
        [[unroll]] for (uint j = 0; j < PER; ++j) sum[i][j] += a[i] * b[j];
      }
    }
  }
  [[unroll]] for (uint i = 0; i < PER; ++i) {
    [[unroll]] for (uint j = 0; j < PER; ++j) {
      const uint r = first_row + ry + 8 * i, c = first_col + cx + 8 * j;
      if (r >= last_row || c >= f.n || (STAGE == 1 && r < c)) continue;
      AT(inverse, z, c * f.f + r) = sum[i][j];
      if (r != c) AT(inverse, z, r * f.f + c) = sum[i][j];
    }
  }
}
