#version 450
// A tile of 64 x 64 of large fronts: C -= L(rows, from .. to) S L(columns, from .. to)'.
//   TARGET 0: C are columns of the factor from `start` up to `last`, of fronts with more pivots
//   TARGET 1: C is the Schur complement, from .. to are all pivots
//   TARGET 2: C is the part of W = [I; L21] L11^-1 before column `from`, rows from there on:
//             C -= W(rows, from .. to) L(from .. to, columns); rows up to `to` have no value yet
// An invocation holds 8 x 4 entries; operands pass through shared memory, the next 16 columns are on their way to registers
// while the present ones are used.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint TARGET = 0;
PARAMETERS(uint first; uint from; uint to; uint start; uint last;)
INPUT(0, uint, list)     // (front, tile row | tile column << 16), TARGET 2: offset of W as well
INPUT(1, uint, fronts)
GRAPHOPT_LARGE(restrict, 2, factor)
GRAPHOPT_LARGE(restrict, 3, updates)  // TARGET 2: W, f x n, column-major
INPUT(4, real, signs)

// 128 invocations
const uint TILE = 64, DEPTH = 16, LINE = TILE + 1, LOADS = TILE * DEPTH / 128;
const uint PER_ROW = TILE / 8, PER_COL = TILE / 16;
shared real left[DEPTH * LINE], right[DEPTH * LINE];
real next_left[LOADS], next_right[LOADS];

void fetch(Front f, uint w, uint depth, uint end, uint first_row, uint first_col) {
  [[unroll]] for (uint q = 0; q < LOADS; ++q) {
    const uint k = depth + LANE / TILE + 2 * q, row = first_row + LANE % TILE, col = first_col + LANE % TILE;
    const uint column = k * f.f;
    if (TARGET == 2) {
      const uint kb = depth + LANE % DEPTH, c = first_col + LANE / DEPTH + 8 * q;
      next_left[q] = k < end && row < f.f ? AT(updates, w, column + row) : ZERO;
      next_right[q] = kb < end && c < push.from ? AT(factor, f.factor, c * f.f + kb) : ZERO;
      continue;
    }
    next_left[q] = k < end && row < f.f ? AT(factor, f.factor, column + row) : ZERO;
    real other = k < end && col < f.f ? AT(factor, f.factor, column + col) : ZERO;
    if (SIGNED != 0 && k < end) other *= signs.at[f.first_pivot + k];
    next_right[q] = other;
  }
}

bool is_updated(Front f, uint r, uint c, uint last_col) { return r >= c && r < f.f && c < last_col; }

void main() {
  const uint entry = push.first + (TARGET == 2 ? 3 : 2) * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint begin = TARGET == 1 ? 0 : push.from, end = TARGET == 1 ? f.n : min(push.to, f.n);
  const uint start = TARGET == 1 ? f.n : TARGET == 2 ? push.from : push.start;
  const uint first_row = start + TILE * (list.at[entry + 1] & 0xffff);
  const uint first_col = (TARGET == 2 ? 0 : start) + TILE * (list.at[entry + 1] >> 16);
  const uint w = TARGET == 2 ? list.at[entry + 2] : 0;
  const uint ry = LANE % 8, cx = LANE / 8;
  real sum[PER_ROW][PER_COL];
  [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
    [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] = ZERO;
  }
  fetch(f, w, begin, end, first_row, first_col);
  for (uint depth = begin; depth < end; depth += DEPTH) {
    barrier();
    [[unroll]] for (uint q = 0; q < LOADS; ++q) {
      left[(LANE / TILE + 2 * q) * LINE + LANE % TILE] = next_left[q];
      const uint at = TARGET == 2 ? LANE % DEPTH * LINE + LANE / DEPTH + 8 * q : (LANE / TILE + 2 * q) * LINE + LANE % TILE;
      right[at] = next_right[q];
    }
    barrier();
    if (depth + DEPTH < end) fetch(f, w, depth + DEPTH, end, first_row, first_col);
    [[unroll]] for (uint k = 0; k < DEPTH; ++k) {
      real a[PER_ROW], b[PER_COL];
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) a[i] = left[k * LINE + ry + 8 * i];
      [[unroll]] for (uint j = 0; j < PER_COL; ++j) b[j] = right[k * LINE + cx + 16 * j];
      [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
        [[unroll]] for (uint j = 0; j < PER_COL; ++j) sum[i][j] += a[i] * b[j];
      }
    }
  }
  const uint last_col = TARGET == 1 ? f.f : TARGET == 2 ? push.from : min(f.n, push.last);
  // All loads before the first store: a load would wait for the store before it, which may be of the same entry.
  [[unroll]] for (uint j = 0; j < PER_COL; ++j) {
    [[unroll]] for (uint i = 0; i < PER_ROW; ++i) {
      const uint r = first_row + ry + 8 * i, c = first_col + cx + 16 * j;
      if (is_updated(f, r, c, last_col)) {
        if (TARGET == 2) {
          sum[i][j] = (r >= push.to && push.to < f.n ? AT(updates, w, c * f.f + r) : ZERO) - sum[i][j];
        } else if (TARGET == 1) {
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
      if (is_updated(f, r, c, last_col)) {
        if (TARGET == 2) {
          AT(updates, w, c * f.f + r) = sum[i][j];
        } else if (TARGET == 1) {
          AT(updates, f.update, (c - f.n) * f.m + r - f.n) = sum[i][j];
        } else {
          AT(factor, f.factor, c * f.f + r) = sum[i][j];
        }
      }
    }
  }
}
