#version 450
// damping[i] = value * clamp(diagonal[i], floor, ceiling): Marquardt's scaling by the diagonal of H.
// One invocation per scalar row. Grid: ceil(num_rows / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_rows;)
INPUT(0, real, rule)      // value, floor, ceiling
INPUT(1, real, diagonal)  // (num_rows,)
OUTPUT(2, real, damping)  // (num_rows,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.num_rows) damping.at[i] = rule.at[0] * min(max(diagonal.at[i], rule.at[1]), rule.at[2]);
}
