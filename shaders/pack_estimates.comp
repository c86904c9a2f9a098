#version 450
// Estimates into packed records: packed[row][i] = estimate[row][i]. Kernels of products read a vertex's estimate and
// its part of x from one record (graphopt/codegen/gpu/packed_products.py).
// One invocation per number. Grid: ceil(num_rows * storage_dim / WORKGROUP_SIZE).
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint num_rows; uint storage_dim; uint record; uint packed_record;)
INPUT(0, real, estimate)  // (num_rows, record)
OUTPUT(1, real, packed)   // (num_rows, packed_record)

void main() {
  const uint entry = WORKGROUP * WORKGROUP_SIZE + LANE;
  const uint row = entry / push.storage_dim, i = entry % push.storage_dim;
  if (row < push.num_rows) packed.at[row * push.packed_record + i] = estimate.at[row * push.record + i];
}
