#version 450
// y = base - y. One invocation per scalar row.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint num_rows;)
INPUT(0, real, base)
INOUT(1, real, y)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.num_rows) y.at[i] = base.at[i] - y.at[i];
}
