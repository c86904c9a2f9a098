#version 450
// y = x: what a device moves per second (graphopt/device/figures.py).
// One invocation per entry. Grid: ceil(count / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count;)
INPUT(0, real, x)   // (count,)
OUTPUT(1, real, y)  // (count,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.count) y.at[i] = x.at[i];
}
