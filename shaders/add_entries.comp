#version 450
// entries[places[i]] += added[i], places all different: what the host adds to H and b.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_places;)
INPUT(0, uint, places)    // (num_places,)
INPUT(1, real, added)     // (num_places,)
GRAPHOPT_LARGE(restrict, 2, entries)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i < push.num_places) AT(entries, places.at[i], 0) += added.at[i];
}
