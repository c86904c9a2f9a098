#version 450
// target = source, where word `place` of the state is not 0; words. With IS_ZERO target = 0 without asking.
// Invocations stride over the words.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
layout(constant_id = 1) const uint IS_ZERO = 0;
PARAMETERS(uint count; uint num_groups; uint place;)
INPUT(0, uint, state)
INPUT(1, uint, source)
OUTPUT(2, uint, target)

void main() {
  if (IS_ZERO == 0 && state.at[push.place] == 0) return;
  for (uint k = WORKGROUP * WORKGROUP_SIZE + LANE; k < push.count; k += push.num_groups * WORKGROUP_SIZE) {
    target.at[k] = IS_ZERO != 0 ? 0 : source.at[k];
  }
}
