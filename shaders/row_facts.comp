#version 450
// What rows of numbers of another library have in common: found[k] = 1 where one of them is
//   0 not finite   1 not above 0   2 in a quaternion that is further than 1e-3 from unit length
//   of matrices:   3 not symmetric   4 off a diagonal and not 0   5 on it and not 1
// One invocation per number. Grid: ceil(num_rows * num_columns / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_rows; uint num_columns; uint dim; uint quaternion; uint offset; uint row_stride;)
// dim: of matrices, 0: there are none; quaternion: its first column, NOTHING: there is none
INPUT(0, double, source)  // number k of a row: offset + row * row_stride + column[k]
INPUT(1, uint, column)    // (num_columns,)
OUTPUT(2, uint, found)    // (6,) zeros before

double at(uint first, uint k) { return source.at[first + column.at[k]]; }

bool is_far_from_unit(uint first) {
  double squared = 0.0LF;
  for (uint k = push.quaternion; k < push.quaternion + 4; ++k) squared += at(first, k) * at(first, k);
  return !(abs(squared - 1.0LF) < 1e-3LF);  // lengths within half of that
}

void main() {
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint row = entry / push.num_columns, k = entry % push.num_columns;
  if (row >= push.num_rows) return;
  const uint first = push.offset + row * push.row_stride;
  const double number = at(first, k);
  // all write the same
  if ((unpackDouble2x32(number).y & 0x7ff00000u) == 0x7ff00000u) found.at[0] = 1;
  if (!(number > 0.0LF)) found.at[1] = 1;
  if (k == push.quaternion && is_far_from_unit(first)) found.at[2] = 1;
  if (push.dim == 0) return;
  const uint i = k / push.dim, j = k % push.dim;
  if (number != at(first, j * push.dim + i)) found.at[3] = 1;
  if (number != (i == j ? 1.0LF : 0.0LF)) found.at[i == j ? 5 : 4] = 1;
}
