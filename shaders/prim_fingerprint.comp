#version 450
// partial[group] = sum of mix(i << 32 | words[i]) mod 2^64 over the words of a workgroup, (low, high); mix: the
// finalizer of splitmix64 (Steele, Lea, Flood 2014). Sums of integers do not depend on their order. With MIXES 0:
// the sum of `count` such pairs, by one workgroup.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint num_groups;)
#include "prim.glsl"
layout(constant_id = 1) const uint MIXES = 1;
WORDS(readonly, 0, words)     // (count), or (count, 2)
WORDS(writeonly, 1, partial)  // (num_groups, 2)

shared uvec2 sums[WORKGROUP_SIZE];

uvec2 plus(uvec2 a, uvec2 b) {
  uint carry;
  const uint low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}

uvec2 times(uvec2 a, uvec2 b) {
  uint high, low;
  umulExtended(a.x, b.x, high, low);
  return uvec2(low, high + a.x * b.y + a.y * b.x);
}

uvec2 xor_right(uvec2 a, uint shift) { return a ^ uvec2(a.x >> shift | a.y << (32 - shift), a.y >> shift); }

uvec2 mixed(uvec2 a) {
  a = times(xor_right(a, 30), uvec2(0x1ce4e5b9u, 0xbf58476du));
  a = times(xor_right(a, 27), uvec2(0x133111ebu, 0x94d049bbu));
  return xor_right(a, 31);
}

void main() {
  const uint group = WORKGROUP;
  if (group >= push.num_groups) return;
  uvec2 sum = uvec2(0);
  const uint stride = push.num_groups * WORKGROUP_SIZE;
  const uint mine = group * WORKGROUP_SIZE + LANE;
  const uint rounds = mine < push.count ? (push.count - mine - 1) / stride + 1 : 0;
  for (uint round = 0; round < rounds; ++round) {
    const uint i = mine + round * stride;
    sum = plus(sum, MIXES != 0 ? mixed(uvec2(WORD(words, i), i)) : uvec2(WORD(words, 2 * i), WORD(words, 2 * i + 1)));
  }
  sums[LANE] = sum;
  barrier();
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    if (LANE < s) sums[LANE] = plus(sums[LANE], sums[LANE + s]);
    barrier();
  }
  if (LANE == 0) {
    WORD(partial, 2 * group) = sums[0].x;
    WORD(partial, 2 * group + 1) = sums[0].y;
  }
}
