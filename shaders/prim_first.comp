#version 450
// first[k] = how many of the sorted keys are smaller than k, for k = 0 .. num_segments: where segments begin and
// end. One invocation per k, a binary search each.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint num_segments;)
#include "prim.glsl"
WORDS(readonly, 0, keys)    // (count), ascending
WORDS(writeonly, 1, first)  // (num_segments + 1)

void main() {
  const uint k = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (k > push.num_segments) return;
  uint low = 0, high = push.count;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    if (WORD(keys, middle) < k) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  WORD(first, k) = low;
}
