#version 450
// target[row][k] = source[row * row_stride + column[k]] in float64, without gaps: numbers of torch or cupy in
// float32. One invocation per number. Grid: ceil(num_rows * num_columns / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_rows; uint num_columns; uint offset; uint row_stride;)
INPUT(0, float, source)    // number k of a row: offset + row * row_stride + column[k]
INPUT(1, uint, column)     // (num_columns,)
OUTPUT(2, double, target)  // (num_rows, num_columns)

void main() {
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint row = entry / push.num_columns, k = entry % push.num_columns;
  if (row < push.num_rows)
    target.at[entry] = double(source.at[push.offset + row * push.row_stride + column.at[k]]);
}
