#version 450
// sums[first_sum + w] = the part of workgroup w of the sum of partial[begin] to partial[end], in a fixed order.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
#include "reduce.glsl"
PARAMETERS(uint begin; uint end; uint num_groups; uint first_sum;)
INPUT(0, accumulator, partial)
OUTPUT(1, accumulator, sums)

void main() {
  accumulator total = sum_zero();
  for (uint p = push.begin + WORKGROUP * WORKGROUP_SIZE + LANE; p < push.end; p += push.num_groups * WORKGROUP_SIZE) {
    total = merge(total, partial.at[p]);
  }
  total = workgroup_sum(total);
  if (LANE == 0) sums.at[push.first_sum + WORKGROUP] = total;
}
