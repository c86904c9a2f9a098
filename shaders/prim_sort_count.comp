#version 450
// table[digit][tile] = how many keys of a tile have a digit: the first step of a pass of a radix sort. One
// workgroup per tile of ROUNDS * WORKGROUP_SIZE keys. Counts do not depend on the order of the atomic additions.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint num_tiles; uint shift;)
#include "prim.glsl"
layout(constant_id = 1) const uint DIGIT_BITS = 8;
layout(constant_id = 2) const uint ROUNDS = 16;
WORDS(readonly, 0, keys)    // (count)
WORDS(writeonly, 1, table)  // (1 << DIGIT_BITS, num_tiles)

const uint RADIX = 1u << DIGIT_BITS;
shared uint counts[RADIX];

void main() {
  const uint tile = WORKGROUP;
  if (tile >= push.num_tiles) return;
  for (uint digit = LANE; digit < RADIX; digit += WORKGROUP_SIZE) counts[digit] = 0;
  barrier();
  for (uint round = 0; round < ROUNDS; ++round) {
    const uint i = (tile * ROUNDS + round) * WORKGROUP_SIZE + LANE;
    if (i < push.count) atomicAdd(counts[WORD(keys, i) >> push.shift & (RADIX - 1)], 1);
  }
  barrier();
  for (uint digit = LANE; digit < RADIX; digit += WORKGROUP_SIZE) {
    WORD(table, digit * push.num_tiles + tile) = counts[digit];
  }
}
