#version 450
// y = x: what a device moves per second (graphopt/device/figures.py).
// One invocation per word of 16 bytes, as kernels that are made for bandwidth read. Grid: ceil(count / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
#define packed_word uvec4
#include "words.glsl"
PARAMETERS(uint count;)
WORDS(restrict readonly, 0, x)   // (count,)
WORDS(restrict writeonly, 1, y)  // (count,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.count) AT(y, i, 0) = AT(x, i, 0);
}
