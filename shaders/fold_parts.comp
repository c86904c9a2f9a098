#version 450
// The last addition of sums that several workgroups share: into blocks of H, segments of b, or a vector.
//
//   target[destination[d] + o] (=, +=, -=) sum over p in [first[d], first[d + 1]) of parts[p * stride + begin + o]
//
// LANES invocations, a power of two, share a sum: each adds up every LANES-th part, then they are merged as a binary
// tree. A workgroup takes WORKGROUP_SIZE / LANES sums, neighbours those of neighbouring outputs o. The order depends
// on the graph only.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint LANES = 1;
layout(constant_id = 2) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
layout(constant_id = 3) const uint ARE_SUMS = 0;   // 1: parts are accumulators, 0: reals
PARAMETERS(uint first_destination; uint num_destinations; uint num_outputs; uint stride; uint begin; uint mode;
           uint ping_pong;)
INPUT(0, real, parts)
INPUT(1, uint, first)        // (n + 1,)
INPUT(2, uint, destination)  // (n,)
GRAPHOPT_LARGE(restrict, 3, target)
INPUT(4, uint, status)

const uint ASSIGN = 0, ADD = 1;  // push.mode; else subtract
const uint SUMS = WORKGROUP_SIZE / LANES;
shared accumulator scratch[WORKGROUP_SIZE];

accumulator part(uint k) {
#if defined(GRAPHOPT_MIXED)
  if (ARE_SUMS != 0) return accumulator(parts.at[2 * k], parts.at[2 * k + 1]);
#endif
  return sum_of(parts.at[k]);
}

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const uint lane = LANE / SUMS, sum = WORKGROUP * SUMS + LANE % SUMS;
  const bool busy = sum < push.num_destinations * push.num_outputs;
  const uint d = push.first_destination + (busy ? sum / push.num_outputs : 0), o = sum % push.num_outputs;
  accumulator total = sum_zero();
  if (busy) {
    const uint end = first.at[d + 1];
    for (uint p = first.at[d] + lane; p < end; p += LANES) {
      total = merge(total, part(p * push.stride + push.begin + o));
    }
  }
  if (LANES > 1) {
    scratch[LANE] = total;
    for (uint n = LANES / 2; n > 0; n /= 2) {
      barrier();
      if (lane < n) scratch[LANE] = merge(scratch[LANE], scratch[LANE + n * SUMS]);
    }
    total = scratch[LANE];
  }
  if (lane != 0 || !busy) return;
  const uint at = destination.at[d];
  const real sum_value = value(total);
  if (push.mode == ASSIGN) {
    AT(target, at, o) = sum_value;
  } else {
    AT(target, at, o) = push.mode == ADD ? AT(target, at, o) + sum_value : AT(target, at, o) - sum_value;
  }
}
