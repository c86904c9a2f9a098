#version 450
// Work queue of the Schur complement on the GPU. One workgroup per destination block S_ij: it finds the
// landmarks that i and j share, whose lists are ascending. Each lane takes a landmark of the shorter list and
// looks for it in the other one, so that a vertex that sees all landmarks (shared intrinsics) takes no longer
// than its partner.
//   CONSTRUCT 0 (estimation): counts[block] = how many.
//   CONSTRUCT 1 (construction): writes the pairs from first_pair[block] on, in the order of the landmarks, as
//     the CPU does.
// Places come from a running sum of the counts, and within a workgroup from the lanes before: the same queue
// every time.
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

const uint WORDS = (WORKGROUP_SIZE + 31) / 32;
shared uint common_lanes[2 * WORDS];  // a bit per lane, of this round and of the next one

// First entry of begin .. end whose landmark is not below this one; end: there is none.
uint lower_bound(uint begin, uint end, uint landmark) {
  while (begin < end) {
    const uint middle = (begin + end) / 2;
    if (entry_landmark.at[middle] < landmark)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

void main() {
  const uint block = push.first_block + WORKGROUP;
  if (block >= push.end_block) return;
  const uint i = blocks.at[2 * block], j = blocks.at[2 * block + 1];
  const uint length_i = row_items.at[i + 1] - row_items.at[i],
             length_j = row_items.at[j + 1] - row_items.at[j];
  const bool walks_i = length_i <= length_j;
  const uint walked = row_items.at[walks_i ? i : j], length = min(length_i, length_j);
  const uint searched = row_items.at[walks_i ? j : i], searched_end = searched + max(length_i, length_j);
  uint found = CONSTRUCT != 0 ? first_pair.at[block] : 0;
  for (uint word = LANE; word < 2 * WORDS; word += WORKGROUP_SIZE) common_lanes[word] = 0;
  barrier();
  uint now = 0;  // which half of the bits is this round's
  for (uint first = 0; first < length; first += WORKGROUP_SIZE) {
    const uint own = walked + first + LANE;
    uint other = own;
    bool is_common = first + LANE < length;
    if (is_common && i != j) {
      const uint landmark = entry_landmark.at[own];
      other = lower_bound(searched, searched_end, landmark);
      is_common = other < searched_end && entry_landmark.at[other] == landmark;
    }
    if (is_common) atomicOr(common_lanes[now + LANE / 32], 1u << (LANE % 32));
    barrier();
    uint place = found;
    for (uint word = 0; word < WORDS; ++word) {
      const uint bits = common_lanes[now + word];
      if (word == LANE / 32) place = found + bitCount(bits & ((1u << (LANE % 32)) - 1));
      found += bitCount(bits);
    }
    if (CONSTRUCT != 0 && is_common) {
      pair_left.at[place] = entry_block.at[walks_i ? own : other];
      pair_right.at[place] = entry_block.at[walks_i ? other : own];
      pair_inverse.at[place] = inverse_offset.at[entry_landmark.at[own]];
    }
    now = WORDS - now;
    barrier();
    if (LANE < WORDS) common_lanes[WORDS - now + LANE] = 0;
  }
  if (CONSTRUCT == 0 && LANE == 0) counts.at[block] = found;
}
