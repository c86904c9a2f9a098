#version 450
// sums[tile] = sum of a tile's words mod 2^32: the first half of a scan. One workgroup per tile.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint num_tiles;)
#include "prim.glsl"
layout(constant_id = 1) const uint ITEMS = 8;  // words per invocation
WORDS(readonly, 0, source)  // (count)
WORDS(writeonly, 1, sums)   // (num_tiles)

void main() {
  const uint tile = WORKGROUP;
  if (tile >= push.num_tiles) return;
  uint mine = 0;
  for (uint k = 0; k < ITEMS; ++k) {
    const uint i = (tile * ITEMS + k) * WORKGROUP_SIZE + LANE;
    if (i < push.count) mine += WORD(source, i);
  }
  uint total;
  workgroup_before(mine, total);
  if (LANE == 0) WORD(sums, tile) = total;
}
