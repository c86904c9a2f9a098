#version 450
// A tile of 64 x 64 of large fronts: C -= L(rows, from .. to) S L(columns, from .. to)'.
//   WHOLE 0: C are columns of the factor from `start` up to `last`, of fronts with more pivots
//   WHOLE 1: C is the Schur complement, from .. to are all pivots
// An invocation holds 8 x 4 entries; operands pass through shared memory, the next 16 columns are on their way to registers
// while the present ones are used.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint WHOLE = 0;
PARAMETERS(uint first; uint from; uint to; uint start; uint last;)
INPUT(0, uint, list)     // (front, tile row | tile column << 16)
INPUT(1, uint, fronts)
FRONT_INOUT(2, factor)
FRONT_INOUT(3, updates)
INPUT(4, real, signs)

// 128 invocations
const uint TILE = 64, DEPTH = 16, LINE = TILE + 1, LOADS = TILE * DEPTH / 128;
const uint PER_ROW = TILE / 8, PER_COL = TILE / 16;
shared real left[DEPTH * LINE], right[DEPTH * LINE];
real next_left[LOADS], next_right[LOADS];

void fetch(Front f, uint depth, uint end, uint first_row, uint first_col) {
  [[unroll]] for (uint q = 0; q < LOADS; ++q) {
    const uint k = depth + LANE / TILE + 2 * q, row = first_row + LANE % TILE, col = first_col + LANE % TILE;
    const uint column = k * f.f;
    next_left[q] = k < end && row < f.f ? AT(factor, f.factor, column + row) : ZERO;
    real other = k < end && col < f.f ? AT(factor, f.factor, column + col) : ZERO;
    if (SIGNED != 0 && k < end) other *= signs.at[f.first_pivot + k];
    next_right[q] = other;
  }
}

void main() {
  const uint entry = push.first + 2 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint begin = WHOLE != 0 ? 0 : push.from, end = WHOLE != 0 ? f.n : push.to;
  const uint start = WHOLE != 0 ? f.n : push.start;
  const uint first_row = start + TILE * (list.at[entry + 1] & 0xffff), first_col = start + TILE * (list.at[entry + 1] >> 16);
  const uint ry = LANE % 8, cx = LANE / 8;
  real sum[PER_ROW][PER_COL];
  [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
    [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] = ZERO;
  }
  fetch(f, begin, end, first_row, first_col);
  for (uint depth = begin; depth < end; depth += DEPTH) {
    barrier();
    [[unroll]] for (uint q = 0; q < LOADS; ++q) {
      left[(LANE / TILE + 2 * q) * LINE + LANE % TILE] = next_left[q];
      right[(LANE / TILE + 2 * q) * LINE + LANE % TILE] = next_right[q];
    }
    barrier();
    if (depth + DEPTH < end) fetch(f, depth + DEPTH, end, first_row, first_col);
    [[unroll]] for (uint k = 0; k < DEPTH; ++k) {
      real a[PER_ROW], b[PER_COL];
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) a[i] = left[k * LINE + ry + 8 * i];
      [[unroll]] for (uint j = 0; j < PER_COL; ++j) b[j] = right[k * LINE + cx + 16 * j];
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
        [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] += a[i] * b[j];
      }
    }
  }
  const uint last_col = WHOLE != 0 ? f.f : min(f.n, push.last);
  // All loads before the first store: a load would wait for the store before it, which may be of the same entry.
  [[unroll]] for (uint j = 0; j < PER_COL; ++j) {
    [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
      const uint r = first_row + ry + 8 * i, c = first_col + cx + 16 * j;
      if (r >= c && r < f.f && c < last_col) {
        if (WHOLE != 0) {
          sum[i][j] = AT(updates, f.update, (c - f.n) * f.m + r - f.n) - sum[i][j];
        } else {
          sum[i][j] = AT(factor, f.factor, c * f.f + r) - sum[i][j];
        }
      }
    }
  }
  [[unroll]] for (uint j = 0; j < PER_COL; ++j) {
    [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
      const uint r = first_row + ry + 8 * i, c = first_col + cx + 16 * j;
      if (r >= c && r < f.f && c < last_col) {
        if (WHOLE != 0) {
          AT(updates, f.update, (c - f.n) * f.m + r - f.n) = sum[i][j];
        } else {
          AT(factor, f.factor, c * f.f + r) = sum[i][j];
        }
      }
    }
  }
}
