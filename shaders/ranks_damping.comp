#version 450
// owned[HEADER + i] = D_i of rows that this rank owns, 0 of others: what its own H is damped with.
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint num_rows; uint num_groups;)
INPUT(0, real, damping)   // see damping.glsl
INPUT(1, uint, is_owned)  // (num_rows,)
OUTPUT(2, real, owned)
#include "damping.glsl"
DAMPING_OF(damping_of, damping)

void main() {
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    owned.at[DAMPING_HEADER + i] = is_owned.at[i] != 0 ? damping_of(i) : real(0.0);
  }
}
