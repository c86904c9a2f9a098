#version 450
// Blocks of H, and b behind them, as sums of what edges have contributed: one invocation per entry, its terms in
// the order of the list. The C library (native/embed) calls it once for all blocks of one shape.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 5
#include "common.glsl"
PARAMETERS(uint first_block; uint num_blocks; uint rows; uint columns; uint packed;)
INPUT(0, uint, first)      // (num_blocks + 1) terms of each block
INPUT(1, uint, terms)      // where a term starts in the contributions; the highest bit: it is the transpose
INPUT(2, uint, place)      // where a block starts in the equations
INPUT(3, real, contributions)
OUTPUT(4, real, equations)

// packed: contributions are upper triangles by columns. Blocks are column-major.
uint entry_of(uint i, uint j, bool transposed) {
  if (push.packed != 0) return i <= j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j;
  return transposed ? j + push.columns * i : i + push.rows * j;
}

void main() {
  const uint size = push.rows * push.columns, number = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (number >= push.num_blocks * size) return;
  const uint block = push.first_block + number / size, entry = number % size;
  const uint i = entry % push.rows, j = entry / push.rows;
  const uint straight = entry_of(i, j, false), turned = entry_of(i, j, true);
  accumulator total = sum_zero();
  for (uint t = first.at[block]; t < first.at[block + 1]; ++t) {
    const uint start = terms.at[t];
    total = add(total, contributions.at[(start & 0x7fffffffu) + ((start >> 31) != 0 ? turned : straight)]);
  }
  equations.at[place.at[block] + entry] = value(total);
}
