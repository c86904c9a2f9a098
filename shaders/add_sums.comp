#version 450
// entries[places[i]] += sums[k] for first[i] <= k < first[i + 1], places all different: after sum_terms.
// One invocation per place. Grid: ceil(num_places / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint num_places;)
INPUT(0, uint, places)  // (num_places,)
INPUT(1, uint, first)   // (num_places + 1,)
INPUT(2, double, sums)
GRAPHOPT_LARGE(restrict, 3, entries)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num_places) return;
  double sum = 0.0LF;
  for (uint k = first.at[i]; k < first.at[i + 1]; ++k) sum += sums.at[k];
  AT(entries, places.at[i], 0) += real(sum);
}
