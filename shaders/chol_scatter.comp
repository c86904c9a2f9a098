#version 450
// factor[places[k]] = values[k]: the entries of H go to the columns of their fronts, which were cleared.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num;)
INPUT(0, uint, places)  // (num,) NOTHING: above the diagonal
LARGE_INPUT(1, values)
INPUT(1, float, narrow_values)
LARGE_OUTPUT(2, factor)

void main() {
  const uint k = push.first + WORKGROUP * WORKGROUP_SIZE + LANE;
  if (k >= push.num) return;
  const uint place = places.at[k];
  if (place == NOTHING) return;
  if (NARROW != 0) {
    AT(factor, place, 0) = real(narrow_values.at[k]);
  } else {
    AT(factor, place, 0) = AT(values, k, 0);
  }
}
