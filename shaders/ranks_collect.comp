#version 450
// target[to[k]] = x_0[from[k]] + x_1[from[k]] + ..., in the order of the ranks: chosen numbers of what all ranks have
// sent, which stand one rank after the other, `stride` numbers each. Invocations stride over k.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint count; uint num_groups; uint num_ranks; uint stride;)
INPUT(0, uint, from)  // (count,)
INPUT(1, uint, to)    // (count,)
LARGE_INPUT(2, gathered)
OUTPUT(3, real, target)

void main() {
  for (uint k = WORKGROUP * WORKGROUP_SIZE + LANE; k < push.count; k += push.num_groups * WORKGROUP_SIZE) {
    const uint place = from.at[k];
    accumulator total = sum_of(AT(gathered, place, 0));
    for (uint rank = 1; rank < push.num_ranks; ++rank) total = add(total, AT(gathered, rank * push.stride + place, 0));
    target.at[to.at[k]] = value(total);
  }
}
