#version 450
// dn = r' J r, and the threshold it must fall under: d0 = tolerance * dn. One workgroup.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
#include "reduce.glsl"
#include "pcg_state.glsl"
PARAMETERS(uint num_groups;)
INPUT(0, accumulator, dots)  // (num_groups,)
INOUT(1, real, scalars)
INOUT(2, uint, status)

void main() {
  SUM_PARTIALS(total, dots, push.num_groups)
  if (LANE != 0) return;
  const real dn = value(total);
  const real threshold = scalars.at[TOLERANCE] * dn;
  scalars.at[SQUARED_NORM] = dn;
  scalars.at[THRESHOLD] = threshold;
  scalars.at[TOTAL_GAIN] = ZERO;
  scalars.at[BETA] = ZERO;
  status.at[ITERATIONS] = 0;
  status.at[STOPPED] = dn > threshold ? 0 : 1;
}
