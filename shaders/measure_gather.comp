#version 450
// How many 16-byte words a device fetches per second from scattered places of a table that caches hold, as edges
// fetch their vertices (graphopt/device/figures.py). One invocation per 8 words. Grid: count / WORKGROUP_SIZE.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint mask;)
INPUT(0, uvec4, table)  // (mask + 1,)
OUTPUT(1, uint, y)      // (count,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  uint total = 0;
  [[unroll]] for (uint k = 0; k < 8; ++k) {
    const uvec4 word = table.at[((8 * i + k) * 2654435761u >> 7) & push.mask];
    total += word.x ^ word.y ^ word.z ^ word.w;
  }
  y.at[i] = total;
}
