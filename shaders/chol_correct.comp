#version 450
// x = correction, or x += correction, which is float32.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
layout(constant_id = 1) const uint ADD = 0;
PARAMETERS(uint dim;)
INPUT(0, float, correction)
INOUT(1, real, x)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.dim) return;
  const real step = real(correction.at[i]);
  x.at[i] = ADD != 0 ? x.at[i] + step : step;
}
