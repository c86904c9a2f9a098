// Small fronts, one per workgroup, from assembly to Schur complement in shared memory:
//   front = its entries of H + the updates of its children;  L by columns;  update = front - L21 S L21'
// The lower triangle is packed by columns: entry (r, c) at c (2 f - c - 1) / 2 + r. An invocation has a row.
//
// To be defined before: COLUMNS, rows of a front at most: 16, 32 or 64, a number so that rows stay in registers.
#ifndef GRAPHOPT_CHOL_SMALL_GLSL
#define GRAPHOPT_CHOL_SMALL_GLSL

#define NUM_BUFFERS 10
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num_pivots;)
INPUT(0, uint, list)        // fronts, from `first` on
INPUT(1, uint, fronts)
INPUT(2, uint, children)
INPUT(3, uint, parent_row)  // row of the parent's front of each row below
FRONT_INPUT(4, below)       // updates of the level below
FRONT_INOUT(5, factor)
FRONT_OUTPUT(6, updates)
INPUT(7, real, thresholds)
OUTPUT(8, real, signs)
INOUT(9, uint, status)

shared real area[COLUMNS * (COLUMNS + 1) / 2 + 80];  // rows past the last column's are read, though not used
shared real scale[COLUMNS], limits[COLUMNS];
uint num_rows;
#define COLUMN(c) ((c) * (2 * num_rows - (c) - 1) / 2)
#include "chol_eliminate.glsl"
const uint WIDE = 16, HIGH = WORKGROUP_SIZE / WIDE;

void load(Front f) {
  const uint size = f.f * (f.f + 1) / 2;
  for (uint k = LANE; k < size; k += WORKGROUP_SIZE) area[k] = ZERO;
  if (LANE < f.n) limits[LANE] = thresholds.at[f.first_pivot + LANE];
  barrier();
  for (uint c = LANE / WIDE; c < f.n; c += HIGH) {
    for (uint r = c + LANE % WIDE; r < f.f; r += WIDE) area[COLUMN(c) + r] = AT(factor, f.factor, c * f.f + r);
  }
  barrier();
}

void add_child(Front f, uint index) {
  const Front child = LOAD_FRONT(index);
  for (uint c = LANE / WIDE; c < child.m; c += HIGH) {
    const uint column = COLUMN(parent_row.at[child.rows + c]);
    for (uint r = c + LANE % WIDE; r < child.m; r += WIDE) {
      area[column + parent_row.at[child.rows + r]] += AT(below, child.update, c * child.m + r);
    }
  }
  barrier();
}

void store(Front f) {
  for (uint c = LANE / WIDE; c < f.n; c += HIGH) {
    for (uint r = c + LANE % WIDE; r < f.f; r += WIDE) {
      AT(factor, f.factor, c * f.f + r) = r == c ? ONE / abs(scale[c]) : area[COLUMN(c) + r] * scale[c];
    }
  }
  const uint r = LANE;
  if (r < f.n || r >= f.f) return;
  for (uint c = f.n; c < done && c <= r; ++c) AT(updates, f.update, (c - f.n) * f.m + r - f.n) = area[COLUMN(c) + r];
  [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
    if (done + j <= r) AT(updates, f.update, (done + j - f.n) * f.m + r - f.n) = row[j];
  }
}

void factor_small() {
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP]);
  num_rows = f.f;
  load(f);
  for (uint k = f.children_begin; k < f.children_end; ++k) add_child(f, children.at[k]);
  eliminate(f.f, f.f, f.n);
  take_pivots(f.first_pivot, f.n, true);
  store(f);
}

#endif
