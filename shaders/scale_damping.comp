#version 450
// damping[i] = value * clamp(H_ii, floor, ceiling): Marquardt's scaling by the diagonal of H.
// One invocation per scalar row. Grid: ceil(num_rows / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint num_rows;)
INPUT(0, real, rule)      // value, floor, ceiling
INPUT(1, uint, places)    // see diagonal_places.glsl
LARGE_INPUT(2, values)
OUTPUT(3, real, damping)  // (num_rows,)
#include "diagonal_places.glsl"

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num_rows) return;
  const uvec2 place = place_of(i);
  damping.at[i] = rule.at[0] * min(max(AT(values, place.x, place.y), rule.at[1]), rule.at[2]);
}
