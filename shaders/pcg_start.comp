#version 450
// dn = r' J r, and the threshold it must fall under: d0 = tolerance * dn, or the one kept from the call before
// where that is positive and larger (g2o's absolute tolerance). One workgroup.
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
  const real threshold = max(scalars.at[TOLERANCE] * dn, scalars.at[KEPT_THRESHOLD]);
  scalars.at[SQUARED_NORM] = dn;
  scalars.at[THRESHOLD] = threshold;
  scalars.at[TOTAL_GAIN] = ZERO;
  scalars.at[BETA] = ZERO;
  status.at[ITERATIONS] = 0;
  status.at[STOPPED] = dn > threshold ? 0 : 1;
}
