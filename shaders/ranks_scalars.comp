#version 450
// The end of a rank's message: message[first ..] = r' s and s' w of this rank, two numbers each (a sum and what
// float32 has lost of it), and 1 where some block was not positive definite. One workgroup.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
PARAMETERS(uint first; uint num_rs; uint num_sw;)
INPUT(0, accumulator, dots_rs)
INPUT(1, accumulator, dots_sw)
INPUT(2, uint, status)
OUTPUT(3, real, message)

#if defined(GRAPHOPT_DOUBLE)
real rest(accumulator s) { return ZERO; }
#else
real rest(accumulator s) {
  precise float lost = (s.hi - value(s)) + s.lo;
  return lost;
}
#endif

void main() {
  SUM_PARTIALS(rs, dots_rs, push.num_rs)
  barrier();
  SUM_PARTIALS(sw, dots_sw, push.num_sw)
  if (LANE != 0) return;
  message.at[push.first] = value(rs);
  message.at[push.first + 1] = rest(rs);
  message.at[push.first + 2] = value(sw);
  message.at[push.first + 3] = rest(sw);
  message.at[push.first + 4] = real(status.at[INDEFINITE]);
}
