#version 450
// What a device computes per second (graphopt/device/figures.py): STEPS times eight independent multiply-adds,
// which do not wait for each other. One invocation per entry of y. Grid: count / WORKGROUP_SIZE.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint steps;)
INPUT(0, real, x)   // (8,): start values; contents are not known to the compiler
OUTPUT(1, real, y)  // (count,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  const real a = x.at[LANE % 8], c = x.at[0];
  real s[8];
  [[unroll]] for (uint k = 0; k < 8; ++k) s[k] = x.at[k];
  for (uint step = 0; step < push.steps; ++step) {
    [[unroll]] for (uint k = 0; k < 8; ++k) s[k] = fma(a, s[k], c);
  }
  real total = ZERO;
  [[unroll]] for (uint k = 0; k < 8; ++k) total += s[k];
  y.at[i] = total;
}
