#version 450
// damping[i] = lambda[0] for all i: the diagonal D of the damped system (H + D) dx = b from one number.
// One invocation per scalar row. Grid: ceil(num_rows / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint num_rows;)
INPUT(0, real, lambda)
OUTPUT(1, real, damping)  // (num_rows,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.num_rows) damping.at[i] = lambda.at[0];
}
