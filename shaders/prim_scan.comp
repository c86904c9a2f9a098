#version 450
// result[i] = offset[tile of i] + sum of source[j] for j < i in the tile, mod 2^32: an exclusive scan. source and
// result may be the same buffer. One workgroup per tile.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint count; uint num_tiles;)
#include "prim.glsl"
layout(constant_id = 1) const uint ITEMS = 8;  // words per invocation
layout(constant_id = 2) const uint HAS_OFFSETS = 1;
WORDS(, 0, source)         // (count)
WORDS(readonly, 1, offset)  // (num_tiles), unused where there is one tile
WORDS(, 2, result)         // (count)

// Invocations own ITEMS words side by side, but read and write them in strides: through shared memory, where a gap
// after each run keeps them out of each other's banks.
shared uint words[WORKGROUP_SIZE * (ITEMS + 1)];

uint place(uint i) { return i + i / ITEMS; }

void main() {
  const uint tile = WORKGROUP;
  if (tile >= push.num_tiles) return;
  const uint first = tile * ITEMS * WORKGROUP_SIZE;
  for (uint k = 0; k < ITEMS; ++k) {
    const uint i = k * WORKGROUP_SIZE + LANE;
    words[place(i)] = first + i < push.count ? WORD(source, first + i) : 0u;
  }
  barrier();
  uint mine = 0;
  for (uint k = 0; k < ITEMS; ++k) mine += words[place(LANE * ITEMS + k)];
  uint total;
  uint before = workgroup_before(mine, total);
  if (HAS_OFFSETS != 0) before += WORD(offset, tile);
  for (uint k = 0; k < ITEMS; ++k) {
    const uint own = words[place(LANE * ITEMS + k)];
    words[place(LANE * ITEMS + k)] = before;
    before += own;
  }
  barrier();
  for (uint k = 0; k < ITEMS; ++k) {
    const uint i = k * WORKGROUP_SIZE + LANE;
    if (first + i < push.count) WORD(result, first + i) = words[place(i)];
  }
}
