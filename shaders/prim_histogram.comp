#version 450
// counts[key] += 1 for every key below num_bins. Few bins are counted in shared memory first. Sums of integers do
// not depend on the order of the atomic additions. One workgroup per ROUNDS * WORKGROUP_SIZE keys.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint num_bins;)
#include "prim.glsl"
layout(constant_id = 1) const uint SHARED_BINS = 2048;
layout(constant_id = 2) const uint ROUNDS = 64;
WORDS(readonly, 0, keys)  // (count)
WORDS(coherent, 1, counts)  // (num_bins), zeros before

shared uint own[SHARED_BINS];

void main() {
  const bool is_shared = push.num_bins <= SHARED_BINS;
  for (uint k = LANE; k < SHARED_BINS; k += WORKGROUP_SIZE) own[k] = 0;
  barrier();
  const uint first = WORKGROUP * ROUNDS * WORKGROUP_SIZE;
  for (uint round = 0; round < ROUNDS; ++round) {
    const uint i = first + round * WORKGROUP_SIZE + LANE;
    if (i >= push.count || i < first) continue;
    const uint key = WORD(keys, i);
    if (key >= push.num_bins) continue;
    if (is_shared) {
      atomicAdd(own[key], 1);
    } else {
      atomicAdd(WORD(counts, key), 1);
    }
  }
  barrier();
  for (uint k = LANE; is_shared && k < push.num_bins; k += WORKGROUP_SIZE) {
    if (own[k] != 0) atomicAdd(WORD(counts, k), own[k]);
  }
}
