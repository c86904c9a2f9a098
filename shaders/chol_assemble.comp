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
FRONT_INPUT(5, below)
FRONT_INOUT(6, factor)
FRONT_OUTPUT(7, updates)

const uint TILE = 32, LINE = TILE + 1;
shared real tile[TILE * LINE];

void add_child(uint index, uint row_tile, uint col_tile) {
  const Front child = LOAD_FRONT(index);
  const uint base = fronts.at[FRONT_SIZE * index + FRONT_TILES];
  const uint row_begin = bounds.at[base + row_tile], row_end = bounds.at[base + row_tile + 1];
  const uint col_begin = bounds.at[base + col_tile], col_end = bounds.at[base + col_tile + 1];
  const uint rows = row_end - row_begin, num = rows * (col_end - col_begin);
  if (num == 0) return;
  for (uint k = LANE; k < num; k += WORKGROUP_SIZE) {
    const uint r = row_begin + k % rows, c = col_begin + k / rows;
    if (r < c) continue;
    const uint row = parent_row.at[child.rows + r] - TILE * row_tile;
    const uint col = parent_row.at[child.rows + c] - TILE * col_tile;
    tile[row + LINE * col] += AT(below, child.update, c * child.m + r);
  }
  barrier();
}

void main() {
  const uint entry = push.first + 2 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row_tile = list.at[entry + 1] & 0xffff, col_tile = list.at[entry + 1] >> 16;
  for (uint k = LANE; k < TILE * TILE; k += WORKGROUP_SIZE) {
    const uint r = TILE * row_tile + k % TILE, c = TILE * col_tile + k / TILE;
    const bool is_pivot = c < f.n && r >= c && r < f.f;
    tile[k % TILE + LINE * (k / TILE)] = is_pivot ? AT(factor, f.factor, c * f.f + r) : ZERO;
  }
  barrier();
  for (uint k = f.children_begin; k < f.children_end; ++k) add_child(children.at[k], row_tile, col_tile);
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
