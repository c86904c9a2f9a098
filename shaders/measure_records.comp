#version 450
// How many records of NUM_WORDS words of 16 bytes a device fetches per second, each invocation others, as edges fetch
// those of their vertices (graphopt/device/figures.py). One invocation per 4 records. Grid: count / WORKGROUP_SIZE.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
#define packed_word uvec4
#include "words.glsl"
layout(constant_id = 1) const uint NUM_WORDS = 4;
PARAMETERS(uint num_records;)
WORDS(restrict readonly, 0, table)  // (num_records * NUM_WORDS,)
OUTPUT(1, uint, y)                  // (count,)

void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  uint total = 0;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    const uint record = ((4 * i + k) * 2654435761u >> 2) % push.num_records;
    [[unroll]] for (uint w = 0; w < NUM_WORDS; ++w) {
      const uvec4 word = AT(table, record * NUM_WORDS, w);
      total += word.x ^ word.y ^ word.z ^ word.w;
    }
  }
  y.at[i] = total;
}
