// Writes the outputs of an oplus program into the records of a vertex set, one invocation per vertex. Vertices that are
// not optimized are copied. narrow_record != 0: float32 copies as well.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "interpret_wide.glsl"
PARAMETERS(uint first_row; uint num_rows; uint stride; uint storage_dim; uint record; uint narrow_record;)
GRAPHOPT_BUFFER(readonly, 0, wide, estimate_in)     // (n, record); may be estimate_out
INPUT(1, uint, offset)          // (n,): first scalar in dx, NOTHING: not optimized
INPUT(2, uint, outputs)         // (storage_dim,): scratch row of each component
INPUT(3, wide, scratch)         // (num_rows, stride)
GRAPHOPT_BUFFER(writeonly, 4, wide, estimate_out)   // (n, record)
OUTPUT(5, float, narrow_out)    // (n, narrow_record)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE, row = push.first_row + i;
  if (i >= push.num_rows) return;
  const bool moves = offset.at[row] != NOTHING;
  for (uint c = 0; c < push.storage_dim; ++c) {
    const uint at = row * push.record + c;
    const wide x = moves ? scratch.at[outputs.at[c] * push.stride + i] : estimate_in.at[at];
    estimate_out.at[at] = x;
    if (push.narrow_record != 0) narrow_out.at[row * push.narrow_record + c] = float(to_real(x));
  }
}
