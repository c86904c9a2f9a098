#version 450
// Selected inverse, W = [I; L21] L11^-1 of every front of a level: an invocation per row solves x L11 = (row), from
// the last column to the first.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first;)
INPUT(0, uint, list)  // (front, tile of 64 rows, offset of W)
INPUT(1, uint, fronts)
FRONT_INPUT(2, factor)
FRONT_INOUT(3, solved)  // W: f x n, column-major

void main() {
  const uint entry = push.first + 3 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row = WORKGROUP_SIZE * list.at[entry + 1] + LANE, base = list.at[entry + 2];
  if (row >= f.f) return;
  const uint last = row < f.n ? row + 1 : f.n;  // W's triangle above is zero
  for (uint j = last; j < f.n; ++j) AT(solved, base, j * f.f + row) = ZERO;
  for (uint back = last; back > 0; --back) {
    const uint j = back - 1;
    real sum = row < f.n ? (row == j ? ONE : ZERO) : AT(factor, f.factor, j * f.f + row);
    for (uint k = j + 1; k < last; ++k) sum -= AT(solved, base, k * f.f + row) * AT(factor, f.factor, j * f.f + k);
    AT(solved, base, j * f.f + row) = sum / AT(factor, f.factor, j * f.f + j);
  }
}
