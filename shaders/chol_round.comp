#version 450
// Reals to float32.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint first; uint num;)
LARGE_INPUT(0, from)
OUTPUT(1, float, to)

void main() {
  const uint k = push.first + WORKGROUP * WORKGROUP_SIZE + LANE;
  if (k < push.num) to.at[k] = float(AT(from, k, 0));
}
