#version 450
// Work queue of the Schur complement on the GPU. One invocation per destination block S_ij: it walks the
// landmark lists of i and j, both ascending, and finds the common ones.
//   CONSTRUCT 0 (estimation): counts[block] = how many.
//   CONSTRUCT 1 (construction): writes the pairs from first_pair[block] on, in the order of the landmarks, as
//     the CPU does.
// Places come from a running sum of the counts: no atomics, the same queue every time.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#include "common.glsl"
layout(constant_id = 1) const uint CONSTRUCT = 0;
PARAMETERS(uint first_block; uint end_block;)
INPUT(0, uint, blocks)          // (num_blocks, 2): i, j
INPUT(1, uint, row_items)       // (num_kept + 1,): first entry of each kept vertex in the next two
INPUT(2, uint, entry_landmark)  // (num_items,): landmarks of a vertex, ascending
INPUT(3, uint, entry_block)     // (num_items,): offset of their H_pl blocks in values
INPUT(4, uint, inverse_offset)  // (num_landmarks,)
INPUT(5, uint, first_pair)      // (num_blocks,)
OUTPUT(6, uint, counts)         // (num_blocks,)
OUTPUT(7, uint, pair_left)
OUTPUT(8, uint, pair_right)
OUTPUT(9, uint, pair_inverse)

void main() {
  const uint block = push.first_block + WORKGROUP * WORKGROUP_SIZE + LANE;
  if (block >= push.end_block) return;
  const uint i = blocks.at[2 * block], j = blocks.at[2 * block + 1];
  uint a = row_items.at[i], b = row_items.at[j];
  const uint a_end = row_items.at[i + 1], b_end = row_items.at[j + 1];
  uint found = 0, place = CONSTRUCT != 0 ? first_pair.at[block] : 0;
  uint la = a < a_end ? entry_landmark.at[a] : 0, lb = b < b_end ? entry_landmark.at[b] : 0;
  while (a < a_end && b < b_end) {
    if (la == lb) {
      if (CONSTRUCT != 0) {
        pair_left.at[place] = entry_block.at[a];
        pair_right.at[place] = entry_block.at[b];
        pair_inverse.at[place] = inverse_offset.at[la];
        ++place;
      }
      ++found;
    }
    const bool step_a = la <= lb, step_b = lb <= la;
    if (step_a && ++a < a_end) la = entry_landmark.at[a];
    if (step_b && ++b < b_end) lb = entry_landmark.at[b];
  }
  if (CONSTRUCT == 0) counts.at[block] = found;
}
