#version 450
// Chosen entries of the selected inverse of a level: result[to_k] = Z[from_k].
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
#include "chol.glsl"
PARAMETERS(uint first; uint num;)
INPUT(0, uint, list)  // (entry of Z, entry of the result)
LARGE_INPUT(1, inverse)
LARGE_OUTPUT(2, result)

void main() {
  const uint k = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (k >= push.num) return;
  AT(result, list.at[push.first + 2 * k + 1], 0) = AT(inverse, list.at[push.first + 2 * k], 0);
}
