#version 450
// Numbers of another library into records or blocks of edges: place p has row row[p] of the source, or row p.
//   records  target[p * block + first + k]                                 lanes = 1
//   edges    target[(p / lanes) * block + (first + k) * lanes + p % lanes]    graphopt/codegen/gpu/layout.py
// One invocation per number. Grid: ceil(num_places * num_columns / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint num_places; uint num_columns; uint has_rows; uint offset; uint row_stride; uint first; uint lanes; uint block;)
INPUT(0, double, source)  // number k of a row: offset + row * row_stride + column[k]
INPUT(1, uint, row)       // (num_places,), where has_rows
INPUT(2, uint, column)    // (num_columns,)
OUTPUT(3, real, target)

void main() {
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint group = push.lanes * push.num_columns;
  const uint lane = entry % push.lanes, k = entry % group / push.lanes;
  const uint place = entry / group * push.lanes + lane;
  if (place >= push.num_places) return;
  const uint from = push.has_rows != 0 ? row.at[place] : place;
  const double number = source.at[push.offset + from * push.row_stride + column.at[k]];
  target.at[place / push.lanes * push.block + (push.first + k) * push.lanes + lane] = real(number);
}
