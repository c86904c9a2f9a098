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
LARGE_INPUT(4, below)       // updates of the level below
GRAPHOPT_LARGE(restrict, 5, factor)
LARGE_OUTPUT(6, updates)
INPUT(7, real, thresholds)
OUTPUT(8, real, signs)
INOUT(9, uint, status)

shared real area[COLUMNS * (COLUMNS + 1) / 2 + 80];  // rows past the last column's are read, though not used
shared real scale[COLUMNS], root[COLUMNS], limits[COLUMNS];
uint num_rows;
#define COLUMN(c) ((c) * (2 * num_rows - (c) - 1) / 2)
#include "chol_eliminate.glsl"
const uint BATCH = 16, CHILDREN = 32;  // columns of a row whose loads are on their way together; children likewise
shared uvec3 child[CHILDREN];          // m, update, rows
shared uint child_row[COLUMNS];

// An invocation has a row, so that what they read of a column is side by side.
void load(Front f) {
  const uint r = LANE;
  if (r < f.n) limits[r] = thresholds.at[f.first_pivot + r];
  for (uint first = 0; first < f.f; first += BATCH) {
    real entries[BATCH];
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint c = first + j;
      entries[j] = c < f.n && c <= r && r < f.f ? AT(factor, f.factor, c * f.f + r) : ZERO;
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint c = first + j;
      if (c <= r && r < f.f) area[COLUMN(c) + r] = entries[j];
    }
  }
}

void add_child(uvec3 of) {
  const uint r = LANE, m = of.x;
  const uint own = r < m ? parent_row.at[of.z + r] : 0;
  for (uint first = 0; first < m; first += BATCH) {
    real entries[BATCH];
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint c = first + j;
      entries[j] = c <= r && r < m ? AT(below, of.y, c * m + r) : ZERO;
    }
    if (first == 0) {
      if (r < m) child_row[r] = own;
      barrier();
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint c = first + j;
      if (c <= r && r < m) entries[j] += area[COLUMN(child_row[c]) + own];
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint c = first + j;
      if (c <= r && r < m) area[COLUMN(child_row[c]) + own] = entries[j];
    }
  }
  barrier();
}

void add_children(Front f) {
  for (uint first = f.children_begin; first < f.children_end; first += CHILDREN) {
    const uint num = min(CHILDREN, f.children_end - first);
    if (LANE < num) {
      const uint place = FRONT_SIZE * children.at[first + LANE];
      child[LANE] = uvec3(fronts.at[place + 2], fronts.at[place + 4], fronts.at[place + 5]);
    }
    barrier();
    for (uint k = 0; k < num; ++k) add_child(child[k]);
  }
}

#define STORE_ENTRY(j) \
  if (done + j <= r) AT(updates, f.update, (done + j - f.n) * f.m + r - f.n) = row[j];

void store(Front f) {
  const uint r = LANE;
  for (uint c = 0; c < f.n && c <= r && r < f.f; ++c) {
    AT(factor, f.factor, c * f.f + r) = r == c ? root[c] : area[COLUMN(c) + r] * scale[c];
  }
  if (r < f.n || r >= f.f) return;
  for (uint c = f.n; c < done && c <= r; ++c) AT(updates, f.update, (c - f.n) * f.m + r - f.n) = area[COLUMN(c) + r];
  EACH(STORE_ENTRY)
}

void factor_small() {
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP]);
  num_rows = f.f;
  load(f);
  add_children(f);
  eliminate(f.f, f.f, f.n);
  take_pivots(f.first_pivot, f.n, true);
  store(f);
}

#endif
