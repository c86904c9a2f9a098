// Puts inputs of a program into its scratch rows: one invocation per edge of the chunk, all components of one source.
//   source_kind 0  records of a vertex or parameter set, of the row that `rows` says for column `column` of the edge view
//               1  measurement, information and kernel width of the edge view
//               2  records in their own order: edge i is row i of a vertex set
//               3  the step of row i of a vertex set, zero where it is not optimized; `rows` are offsets in dx
// The arrays of an edge view are blocked: entry (e, k) of K columns is at ((e / 64) K + k) 64 + e % 64.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
#include "interpret_wide.glsl"
PARAMETERS(uint source_kind; uint first_edge; uint num_edges; uint stride; uint num_components; uint record; uint column;)
INPUT(0, wide, source)      // source_kind 0, 2: (n, record); 1: blocked, record columns
INPUT(1, real, dx)          // source_kind 3
INPUT(2, uint, rows)        // source_kind 0: blocked, record columns of the view in `columns`; 3: (n,)
INPUT(3, uint, targets)     // (num_components + 1,): scratch row of each component, NOTHING: not read; columns of rows
OUTPUT(4, wide, scratch)    // (num_rows, stride)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE, edge = push.first_edge + i;
  if (i >= push.num_edges) return;
  uint start = edge * push.record;
  if (push.source_kind == 0) start = rows.at[blocked(edge, targets.at[push.num_components]) + push.column * 64] * push.record;
  if (push.source_kind == 3) start = rows.at[edge];
  for (uint c = 0; c < push.num_components; ++c) {
    const uint target = targets.at[c];
    if (target == NOTHING) continue;
    wide x;
    if (push.source_kind == 1) x = source.at[blocked(edge, push.record) + c * 64];
    else if (push.source_kind == 3) x = w_number(start == NOTHING ? ZERO : dx.at[start + c]);
    else x = source.at[start + c];
    scratch.at[target * push.stride + i] = x;
  }
}
