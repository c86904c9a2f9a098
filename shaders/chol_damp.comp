#version 450
// The diagonal: factor[places[i]] += D of row source[i], and what pivot i must exceed.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "chol.glsl"
#include "damping.glsl"
layout(constant_id = 1) const uint DAMPED = 1;  // 0: D = 0
PARAMETERS(uint dim;)
INPUT(0, uint, places)   // (dim,) in the order of elimination
INPUT(1, uint, source)   // (dim,) scalar of the matrix
INPUT(2, real, damping)  // see damping.glsl, in the order of the matrix
INPUT(2, float, narrow_damping)
DAMPING_OF(damping_of, damping)
DAMPING_OF(narrow_damping_of, narrow_damping)
GRAPHOPT_LARGE(restrict, 3, factor)
OUTPUT(4, real, thresholds)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.dim) return;
  const uint place = places.at[i];
  real diagonal = AT(factor, place, 0);
  if (DAMPED != 0) {
    const uint scalar = source.at[i];
    diagonal += NARROW != 0 ? narrow_damping_of(scalar) : damping_of(scalar);
    AT(factor, place, 0) = diagonal;
  }
  thresholds.at[i] = PIVOT_TOLERANCE * abs(diagonal);
}
