#version 450
// sums[first + w] = the part of workgroup w of the sum of `num` accumulators, in a fixed order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
#include "reduce.glsl"
PARAMETERS(uint num; uint num_groups; uint first;)
INPUT(0, accumulator, partial)  // (num,)
OUTPUT(1, accumulator, sums)

void main() {
  accumulator total = sum_zero();
  for (uint p = WORKGROUP * WORKGROUP_SIZE + LANE; p < push.num; p += push.num_groups * WORKGROUP_SIZE) {
    total = merge(total, partial.at[p]);
  }
  total = workgroup_sum(total);
  if (LANE == 0) sums.at[push.first + WORKGROUP] = total;
}
