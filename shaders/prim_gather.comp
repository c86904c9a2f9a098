#version 450
// target row r = source row order[r], rows of `width` units of UNIT bytes (16, 4 or 1). One workgroup per ROWS rows, a
// multiple of 4 where UNIT is 1; an invocation moves a unit, or a word made of four bytes.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 3
#include "common.glsl"
PARAMETERS(uint count; uint width;)
#include "prim.glsl"
layout(constant_id = 1) const uint UNIT = 4;
layout(constant_id = 2) const uint ROWS = 256;
WORDS(readonly, 1, order)  // (count)

#if defined(GRAPHOPT_ADDRESS)
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Target { uint at; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 at; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer TargetQuads { uvec4 at; };
// The place of a byte behind an address: row * bytes + byte.
uvec2 at_byte(uvec2 address, uint row, uint bytes, uint byte) {
  uint high, low, carry;
  umulExtended(row, bytes, high, low);
  low = uaddCarry(low, byte, carry);
  high += carry;
  low = uaddCarry(low, address.x, carry);
  return uvec2(low, address.y + high + carry);
}
uint byte_of(uint row, uint bytes, uint byte) {
  const uvec2 place = at_byte(ADDRESS(0), row, bytes, byte);
  return Words(uvec2(place.x & ~3u, place.y)).at >> 8 * (place.x & 3u) & 0xffu;
}
#else
layout(std430, set = 0, binding = 0) readonly buffer Words { uint at[]; } source;
layout(std430, set = 0, binding = 0) readonly buffer Quads { uvec4 at[]; } source_quads;
layout(std430, set = 0, binding = 2) writeonly buffer Target { uint at[]; } target;
layout(std430, set = 0, binding = 2) writeonly buffer TargetQuads { uvec4 at[]; } target_quads;
uint byte_of(uint row, uint bytes, uint byte) {
  const uint place = row * bytes + byte;
  return source.at[place >> 2] >> 8 * (place & 3u) & 0xffu;
}
#endif

void move_quad(uint from, uint to, uint column) {
#if defined(GRAPHOPT_ADDRESS)
  TargetQuads(at_byte(ADDRESS(2), to, 16 * push.width, 16 * column)).at =
      Quads(at_byte(ADDRESS(0), from, 16 * push.width, 16 * column)).at;
#else
  target_quads.at[to * push.width + column] = source_quads.at[from * push.width + column];
#endif
}

void move_word(uint from, uint to, uint column) {
#if defined(GRAPHOPT_ADDRESS)
  Target(at_byte(ADDRESS(2), to, 4 * push.width, 4 * column)).at =
      Words(at_byte(ADDRESS(0), from, 4 * push.width, 4 * column)).at;
#else
  target.at[to * push.width + column] = source.at[from * push.width + column];
#endif
}

// Word `place` of the rows from `first` on.
void make_word(uint first, uint rows, uint place) {
  uint word = 0;
  for (uint k = 0; k < 4; ++k) {
    const uint byte = 4 * place + k, row = byte / push.width;
    if (row < rows) word |= byte_of(WORD(order, first + row), push.width, byte - row * push.width) << (8 * k);
  }
#if defined(GRAPHOPT_ADDRESS)
  Target(at_byte(ADDRESS(2), first, push.width, 4 * place)).at = word;
#else
  target.at[first * push.width / 4 + place] = word;
#endif
}

void main() {
  const uint first = WORKGROUP * ROWS;
  if (first >= push.count) return;
  const uint rows = min(ROWS, push.count - first);
  if (UNIT == 1) {
    const uint words = (rows * push.width + 3) / 4;
    for (uint place = LANE; place < words; place += WORKGROUP_SIZE) make_word(first, rows, place);
    return;
  }
  for (uint k = LANE; k < rows * push.width; k += WORKGROUP_SIZE) {
    const uint row = k / push.width, column = k - row * push.width;
    const uint from = WORD(order, first + row);
    if (UNIT == 16) {
      move_quad(from, first + row, column);
    } else {
      move_word(from, first + row, column);
    }
  }
}
