#version 450
// sums[i] = source[term[k]] for first[i] <= k < first[i + 1], added up in this order: parts of what a
// function of another library adds to H and b. One invocation per sum. Grid: ceil(num_sums / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint num_sums;)
INPUT(0, uint, first)  // (num_sums + 1,)
INPUT(1, uint, term)
INPUT(2, double, source)
OUTPUT(3, double, sums)  // (num_sums,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num_sums) return;
  double sum = 0.0LF;
  for (uint k = first.at[i]; k < first.at[i + 1]; ++k) sum += source.at[term.at[k]];
  sums.at[i] = sum;
}
