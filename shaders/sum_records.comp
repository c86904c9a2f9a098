#version 450
// Entries of H and b from numbers that one kernel has left per edge: each is the sum of some of them.
//
//   entry[target[t]] (+)= sum over k in [first[t], first[t + 1]) of +-numbers[source[k]]    t in [begin, end)
//
// Targets from `first_b` on are entries of b, those before it of H. A source is the place of a number, with bit 31
// one that is subtracted. The order depends on the graph only.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
PARAMETERS(uint begin; uint end; uint first_b; uint target; uint source; uint accumulate;)
INPUT(0, real, numbers)
INPUT(1, uint, table)  // first (n + 1,), from push.target on target (n,), from push.source on source
GRAPHOPT_LARGE(restrict, 2, values)
INOUT(3, real, b)

void main() {
  const uint t = push.begin + WORKGROUP * WORKGROUP_SIZE + LANE;
  if (t >= push.end) return;
  accumulator sum = sum_zero();
  const uint last = table.at[t + 1];
  for (uint k = table.at[t]; k < last; ++k) {
    const uint code = table.at[push.source + k];
    const real number = numbers.at[code & 0x7fffffffu];
    sum = add(sum, (code >> 31) != 0 ? -number : number);
  }
  const uint at = table.at[push.target + t];
  if (t >= push.first_b) {
    b.at[at] = (push.accumulate != 0 ? b.at[at] : ZERO) + value(sum);
  } else {
    AT(values, at, 0) = (push.accumulate != 0 ? AT(values, at, 0) : ZERO) + value(sum);
  }
}
