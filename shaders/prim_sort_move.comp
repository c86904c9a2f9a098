#version 450
// Moves (key, value) pairs to their places by one digit, stably: the last step of a pass of a radix sort.
//
// One workgroup per tile, one key per invocation and round. Who has the same digit is a mask of one bit per
// invocation in shared memory (setting bits commutes), so that the rank of a key is a number of bits: no subgroup
// operations, and no order that could differ between two runs.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
PARAMETERS(uint count; uint num_tiles; uint shift;)
#include "prim.glsl"
layout(constant_id = 1) const uint DIGIT_BITS = 8;
layout(constant_id = 2) const uint ROUNDS = 16;
layout(constant_id = 3) const uint COUNTS_VALUES = 0;  // 1: the value of pair i is i, and is not read
WORDS(readonly, 0, keys)          // (count)
WORDS(readonly, 1, values)        // (count)
WORDS(readonly, 2, table)         // (1 << DIGIT_BITS, num_tiles): first place of a tile's keys with a digit
WORDS(writeonly, 3, keys_after)   // (count)
WORDS(writeonly, 4, values_after)  // (count)

const uint RADIX = 1u << DIGIT_BITS;
const uint MASK_WORDS = (WORKGROUP_SIZE + 31) / 32;
shared uint next_place[RADIX];
shared uint same[RADIX * MASK_WORDS];

void main() {
  const uint tile = WORKGROUP;
  if (tile >= push.num_tiles) return;
  for (uint digit = LANE; digit < RADIX; digit += WORKGROUP_SIZE) {
    next_place[digit] = WORD(table, digit * push.num_tiles + tile);
  }
  for (uint k = LANE; k < RADIX * MASK_WORDS; k += WORKGROUP_SIZE) same[k] = 0;
  const uint word = LANE / 32, bit = 1u << (LANE & 31);
  for (uint round = 0; round < ROUNDS; ++round) {
    const uint i = (tile * ROUNDS + round) * WORKGROUP_SIZE + LANE;
    const bool is_there = i < push.count;
    const uint key = is_there ? WORD(keys, i) : 0u;
    const uint digit = key >> push.shift & (RADIX - 1);
    barrier();  // masks are empty, next places are those of this round
    if (is_there) atomicOr(same[digit * MASK_WORDS + word], bit);
    barrier();
    uint before = 0, total = 0;
    if (is_there) {
      for (uint w = 0; w < MASK_WORDS; ++w) {
        const uint bits = same[digit * MASK_WORDS + w];
        total += bitCount(bits);
        before += bitCount(w < word ? bits : w == word ? bits & (bit - 1) : 0u);
      }
      const uint to = next_place[digit] + before;
      WORD(keys_after, to) = key;
      WORD(values_after, to) = COUNTS_VALUES != 0 ? i : WORD(values, i);
    }
    barrier();  // everybody has read
    if (is_there && before == 0) {
      next_place[digit] += total;
      for (uint w = 0; w < MASK_WORDS; ++w) same[digit * MASK_WORDS + w] = 0;
    }
  }
}
