#version 450
// Right-hand sides into the order of elimination, or solutions back: y_i = b_source(i), x_source(i) = y_i.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
#include "chol.glsl"
layout(constant_id = 1) const uint BACK = 0;
PARAMETERS(uint dim; uint num;)  // num: dim times the number of sides
INPUT(0, uint, source)
INPUT(1, real, from)
OUTPUT(2, real, to)
INPUT(1, float, narrow_from)
OUTPUT(2, float, narrow_to)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.num) return;
  const uint side = i / push.dim * push.dim, place = side + source.at[i - side];
  if (BACK != 0) {
    if (NARROW != 0) {
      narrow_to.at[place] = float(from.at[i]);
    } else {
      to.at[place] = from.at[i];
    }
  } else {
    to.at[i] = NARROW != 0 ? real(narrow_from.at[place]) : from.at[place];
  }
}
