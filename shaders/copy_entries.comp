#version 450
// out[to[k]] = in[from[k]]: chosen numbers, to chosen places. Invocations stride over k.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint count; uint num_groups;)
INPUT(0, uint, from)  // (count,)
INPUT(1, uint, to)    // (count,)
LARGE_INPUT(2, source)
OUTPUT(3, real, target)

void main() {
  for (uint k = WORKGROUP * WORKGROUP_SIZE + LANE; k < push.count; k += push.num_groups * WORKGROUP_SIZE) {
    target.at[to.at[k]] = AT(source, from.at[k], 0);
  }
}
