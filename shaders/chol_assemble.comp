#version 450
// Large fronts: a tile of 32 x 32 of a front's lower triangle += the updates of its children, one after the other.
// The part below the pivots starts from zero. bounds: for each child the first of its rows at or after each
// multiple of 32 of the parent's rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first;)
INPUT(0, uint, list)        // (front, tile row | tile column << 16)
INPUT(1, uint, fronts)
INPUT(2, uint, children)
INPUT(3, uint, parent_row)
INPUT(4, uint, bounds)
LARGE_INPUT(5, below)
GRAPHOPT_LARGE(restrict, 6, factor)
LARGE_OUTPUT(7, updates)

const uint TILE = 32, LINE = TILE + 1, CHILDREN = 32, BATCH = 8;
shared real tile[TILE * LINE];
shared uvec3 child[CHILDREN];   // m, update, rows
shared uvec4 inside[CHILDREN];  // rows and columns, from and to, that are in the tile

void add_child(uvec3 of, uvec4 span, uint row_tile, uint col_tile) {
  const uint rows = span.y - span.x, num = rows * (span.w - span.z);
  if (num == 0) return;
  for (uint first = LANE; first < num; first += BATCH * WORKGROUP_SIZE) {
    uint place[BATCH];
    real entries[BATCH];
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint k = first + j * WORKGROUP_SIZE;
      const uint r = span.x + k % rows, c = span.z + k / rows;
      const bool is_lower = k < num && r >= c;
      place[j] = NOTHING;
      entries[j] = ZERO;
      if (is_lower) {
        const uint row = parent_row.at[of.z + r] - TILE * row_tile, col = parent_row.at[of.z + c] - TILE * col_tile;
        place[j] = row + LINE * col;
        entries[j] = AT(below, of.y, c * of.x + r);
      }
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      if (place[j] != NOTHING) entries[j] += tile[place[j]];
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      if (place[j] != NOTHING) tile[place[j]] = entries[j];
    }
  }
  barrier();
}

void add_children(Front f, uint row_tile, uint col_tile) {
  for (uint first = f.children_begin; first < f.children_end; first += CHILDREN) {
    const uint num = min(CHILDREN, f.children_end - first);
    barrier();
    if (LANE < num) {
      const uint place = FRONT_SIZE * children.at[first + LANE];
      child[LANE] = uvec3(fronts.at[place + 2], fronts.at[place + 4], fronts.at[place + 5]);
      const uint base = fronts.at[place + FRONT_TILES], row = base + row_tile, col = base + col_tile;
      inside[LANE] = uvec4(bounds.at[row], bounds.at[row + 1], bounds.at[col], bounds.at[col + 1]);
    }
    barrier();
    for (uint k = 0; k < num; ++k) add_child(child[k], inside[k], row_tile, col_tile);
  }
}

void main() {
  const uint entry = push.first + 2 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row_tile = list.at[entry + 1] & 0xffff, col_tile = list.at[entry + 1] >> 16;
  for (uint first = LANE; first < TILE * TILE; first += BATCH * WORKGROUP_SIZE) {
    real entries[BATCH];
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint k = first + j * WORKGROUP_SIZE;
      const uint r = TILE * row_tile + k % TILE, c = TILE * col_tile + k / TILE;
      const bool is_pivot = k < TILE * TILE && c < f.n && r >= c && r < f.f;
      entries[j] = is_pivot ? AT(factor, f.factor, c * f.f + r) : ZERO;
    }
    [[unroll]] for (uint j = 0; j < BATCH; ++j) {
      const uint k = first + j * WORKGROUP_SIZE;
      if (k < TILE * TILE) tile[k % TILE + LINE * (k / TILE)] = entries[j];
    }
  }
  add_children(f, row_tile, col_tile);
  barrier();
  for (uint k = LANE; k < TILE * TILE; k += WORKGROUP_SIZE) {
    const uint r = TILE * row_tile + k % TILE, c = TILE * col_tile + k / TILE;
    if (r < c || r >= f.f) continue;
    const real entry_value = tile[k % TILE + LINE * (k / TILE)];
    if (c < f.n) {
      AT(factor, f.factor, c * f.f + r) = entry_value;
    } else {
      AT(updates, f.update, (c - f.n) * f.m + r - f.n) = entry_value;
    }
  }
}
