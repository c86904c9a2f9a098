#version 450
// What matrices have in common: differs[0] = 1 where an entry off a diagonal is not 0, [1] = 1 where one on it
// is not 1. One invocation per entry. Grid: ceil(num_rows * dim * dim / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_rows; uint dim; uint offset; uint row_stride;)
INPUT(0, double, source)  // entry k of a row: offset + row * row_stride + column[k]
INPUT(1, uint, column)    // (dim * dim,)
OUTPUT(2, uint, differs)  // (2,) zeros before

void main() {
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE, size = push.dim * push.dim;
  const uint row = entry / size, k = entry % size;
  if (row >= push.num_rows) return;
  const bool on_diagonal = k / push.dim == k % push.dim;
  const double number = source.at[push.offset + row * push.row_stride + column.at[k]];
  if (number != (on_diagonal ? 1.0LF : 0.0LF)) differs.at[on_diagonal ? 1 : 0] = 1;  // all write the same
}
