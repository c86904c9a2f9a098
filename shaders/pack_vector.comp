#version 450
// A vector like dx into packed records: packed[row][storage_dim + i] = x[offset[row] + i], 0 where the row has no part.
// One invocation per number. Grid: ceil(num_rows * tangent_dim / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 4
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint STOPPABLE = 0;  // 1: inside the conjugate gradients
PARAMETERS(uint num_rows; uint storage_dim; uint tangent_dim; uint packed_record; uint ping_pong;)
INPUT(0, uint, offset)   // (num_rows,)
INPUT(1, real, x)
OUTPUT(2, real, packed)  // (num_rows, packed_record)
INPUT(3, uint, status)

void main() {
  if (STOPPABLE != 0 && status.at[STOPPED + push.ping_pong] != 0) return;
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint row = entry / push.tangent_dim, i = entry % push.tangent_dim;
  if (row >= push.num_rows) return;
  const uint first = offset.at[row];
  packed.at[row * push.packed_record + push.storage_dim + i] = first == NOTHING ? ZERO : x.at[first + i];
}
