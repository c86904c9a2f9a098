#version 450
// Conjugate gradients of Chronopoulos and Gear (1989), the vectors: with w = A s and the two numbers of all ranks,
//   d = s + beta d;  q = w + beta q;  x += alpha d;  r -= alpha q
// Invocations stride over the scalar rows.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
PARAMETERS(uint num_rows; uint num_groups; uint first;)
INPUT(0, real, total)  // [first], [first + 1]: alpha, beta
INPUT(1, real, s)
INPUT(2, real, w)
INOUT(3, real, d)
INOUT(4, real, q)
INOUT(5, real, x)
INOUT(6, real, r)

void main() {
  const real alpha = total.at[push.first], beta = total.at[push.first + 1];
  for (uint i = WORKGROUP * WORKGROUP_SIZE + LANE; i < push.num_rows; i += push.num_groups * WORKGROUP_SIZE) {
    const real d_i = s.at[i] + beta * d.at[i], q_i = w.at[i] + beta * q.at[i];
    d.at[i] = d_i;
    q.at[i] = q_i;
    x.at[i] = x.at[i] + alpha * d_i;
    r.at[i] = r.at[i] - alpha * q_i;
  }
}
