#version 450
// Chosen entries of the selected inverse of a level whose Z11 nobody else reads, an entry per workgroup:
//   Z11(i, j) = W1(:, i)' S W1(:, j) - W2(:, i)' Z21(:, j)
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "chol.glsl"
#include "reduce.glsl"
PARAMETERS(uint first;)
INPUT(0, uint, list)  // (front, row, column, offset of W, of Z, entry of the result)
INPUT(1, uint, fronts)
INPUT(2, real, signs)
LARGE_INPUT(3, solved)
LARGE_INPUT(4, inverse)
OUTPUT(5, real, result)

void main() {
  const uint entry = push.first + 6 * WORKGROUP;
  const Front f = LOAD_FRONT(list.at[entry]);
  const uint row = list.at[entry + 1], col = list.at[entry + 2], w = list.at[entry + 3], z = list.at[entry + 4];
  const uint to = list.at[entry + 5];
  if (max(row, col) >= f.n) {
    if (LANE == 0) result.at[to] = AT(inverse, z, col * f.f + row);
    return;
  }
  accumulator sum = sum_zero();
  for (uint k = max(row, col) + LANE; k < f.f; k += WORKGROUP_SIZE) {
    real other = k < f.n ? AT(solved, w, col * f.f + k) : -AT(inverse, z, col * f.f + k);
    if (SIGNED != 0 && k < f.n) other *= signs.at[f.first_pivot + k];
    sum = add_product(sum, AT(solved, w, row * f.f + k), other);
  }
  sum = workgroup_sum(sum);
  if (LANE == 0) result.at[to] = value(sum);
}
