#version 450
// Small fronts, one per workgroup, from assembly to Schur complement in shared memory:
//   front = its entries of H + the updates of its children;  L by columns;  update = front - L21 S L21'
// The lower triangle is packed by columns: entry (r, c) at c (2 f - c - 1) / 2 + r.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint MAX_ROWS = 64;
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

shared real front_entries[MAX_ROWS * (MAX_ROWS + 1) / 2];
shared real scale[MAX_ROWS];
const uint WIDE = 16, HIGH = WORKGROUP_SIZE / WIDE;

uint at(Front f, uint r, uint c) { return c * (2 * f.f - c - 1) / 2 + r; }

void load(Front f) {
  const uint size = f.f * (f.f + 1) / 2;
  for (uint k = LANE; k < size; k += WORKGROUP_SIZE) front_entries[k] = ZERO;
  barrier();
  for (uint c = LANE / WIDE; c < f.n; c += HIGH) {
    for (uint r = c + LANE % WIDE; r < f.f; r += WIDE) front_entries[at(f, r, c)] = AT(factor, f.factor, c * f.f + r);
  }
  barrier();
}

void add_child(Front f, uint index) {
  const Front child = LOAD_FRONT(index);
  for (uint c = LANE / WIDE; c < child.m; c += HIGH) {
    const uint col = parent_row.at[child.rows + c];
    for (uint r = c + LANE % WIDE; r < child.m; r += WIDE) {
      front_entries[at(f, parent_row.at[child.rows + r], col)] += AT(below, child.update, c * child.m + r);
    }
  }
  barrier();
}

// LDL' by columns; column c keeps L_rc D_c.
void eliminate(Front f, uint k) {
  const uint column = at(f, 0, k);
  const real pivot = front_entries[column + k];
  const bool good = good_pivot(pivot, thresholds.at[f.first_pivot + k]);
  const real inverse = good ? ONE / pivot : ONE;
  if (LANE == 0) {
    scale[k] = !good ? ONE : SIGNED != 0 && pivot < ZERO ? -ONE / sqrt(-pivot) : ONE / sqrt(pivot);
    if (!good) NOTE_BAD_PIVOT(f.first_pivot + k);
    if (SIGNED != 0) {
      signs.at[f.first_pivot + k] = good && pivot < ZERO ? -ONE : ONE;
      if (good && pivot < ZERO) NOTE_NEGATIVE();
    }
  }
  for (uint c = k + 1 + LANE / WIDE; c < f.f; c += HIGH) {
    const real left = front_entries[column + c] * inverse;
    const uint target = at(f, 0, c);
    for (uint r = c + LANE % WIDE; r < f.f; r += WIDE) front_entries[target + r] -= front_entries[column + r] * left;
  }
  barrier();
}

void store(Front f) {
  for (uint c = LANE / WIDE; c < f.n; c += HIGH) {
    for (uint r = c + LANE % WIDE; r < f.f; r += WIDE) {
      AT(factor, f.factor, c * f.f + r) = r == c ? ONE / abs(scale[c]) : front_entries[at(f, r, c)] * scale[c];
    }
  }
  for (uint c = LANE / WIDE; c < f.m; c += HIGH) {
    for (uint r = c + LANE % WIDE; r < f.m; r += WIDE) {
      AT(updates, f.update, c * f.m + r) = front_entries[at(f, f.n + r, f.n + c)];
    }
  }
}

void main() {
  const Front f = LOAD_FRONT(list.at[push.first + WORKGROUP]);
  load(f);
  for (uint k = f.children_begin; k < f.children_end; ++k) add_child(f, children.at[k]);
  for (uint k = 0; k < f.n; ++k) eliminate(f, k);
  store(f);
}
