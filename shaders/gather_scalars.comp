#version 450
// Two scalars from the parts of many workgroups: the sum (SUM_FIRST) or the largest of the first ones, the
// largest of the second ones. One workgroup.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
#include "reduce.glsl"
#include "extremes.glsl"
layout(constant_id = 1) const uint SUM_FIRST = 0;
PARAMETERS(uint num_groups;)
INPUT(0, accumulator, partial)  // (num_groups, 2)
OUTPUT(1, accumulator, result)  // (2,)

void main() {
  accumulator total = sum_zero();
  real first = ZERO, second = ZERO;
  for (uint p = LANE; p < push.num_groups; p += WORKGROUP_SIZE) {
    if (SUM_FIRST != 0) {
      total = merge(total, partial.at[2 * p]);
    } else {
      first = larger(first, value(partial.at[2 * p]));
    }
    second = larger(second, value(partial.at[2 * p + 1]));
  }
  total = workgroup_sum(total);
  first = workgroup_largest(first);
  second = workgroup_largest(second);
  if (LANE == 0) {
    if (SUM_FIRST != 0) result.at[0] = total;
    else result.at[0] = sum_of(first);
    result.at[1] = sum_of(second);
  }
}
