#version 450
// Which blocks S_ij (i <= j) of the Schur complement are not zero: bit i of row j of `bitmap` is set when some
// landmark is seen by i and j. One invocation per H_pl block: item k of vertex j sets the bits of the items
// before it in its landmark. The only atomics of the solver: or-ing bits gives the same result in any order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint first_item; uint end_item; uint words_per_row;)
INPUT(0, uint, item_row)       // (num_items,): kept vertex
INPUT(1, uint, item_landmark)  // (num_items,)
INPUT(2, uint, landmark_items) // (num_landmarks + 1,)
INOUT(3, uint, bitmap)         // (num_kept, words_per_row)

void main() {
  const uint k = push.first_item + WORKGROUP * WORKGROUP_SIZE + LANE;
  if (k >= push.end_item) return;
  const uint row = item_row.at[k] * push.words_per_row;
  for (uint left = landmark_items.at[item_landmark.at[k]]; left <= k; ++left) {
    const uint i = item_row.at[left], word = row + i / 32, bit = 1u << (i % 32);
    // Most bits are set already: look before the atomic.
    if ((bitmap.at[word] & bit) == 0) atomicOr(bitmap.at[word], bit);
  }
}
