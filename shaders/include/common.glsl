// What every kernel includes: how it reaches its buffers, and how wide it computes.
//
//   GRAPHOPT_ADDRESS  buffers by 64-bit address in push constants: no descriptor sets, no limit on their size
//   GRAPHOPT_STORAGE  the same names as storage buffers in descriptor set 0, binding = slot
//   GRAPHOPT_DOUBLE   real = float64
//   GRAPHOPT_MIXED    real = float32; sums are carried as two floats (hi + lo)
//
// A kernel says NUM_BUFFERS, PARAMETERS(uint a; uint b;) -> push.a, then INPUT / OUTPUT / INOUT(slot, type, name) ->
// name.at[i], and what may pass 4 GiB LARGE_INPUT / LARGE_OUTPUT(slot, name) for reals, FAR_INPUT / FAR_OUTPUT(slot,
// type, shift, name) for others -> AT(name, first, i). Workgroups are counted by WORKGROUP, because a long row of them is folded into two dimensions.
#ifndef GRAPHOPT_COMMON_GLSL
#define GRAPHOPT_COMMON_GLSL

#extension GL_EXT_control_flow_attributes : require  // [[unroll]]

#if defined(GRAPHOPT_ADDRESS)
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#if defined(GRAPHOPT_TABLE)  // more addresses than fit into push constants: they are in a buffer of their own
layout(buffer_reference, std430, buffer_reference_align = 8) restrict readonly buffer address_table { uvec2 at[]; };
#define PARAMETERS(members) \
  layout(push_constant, std430) uniform Push { uvec2 table; members } push;
#define ADDRESS(slot) address_table(push.table).at[slot]
#else
#define PARAMETERS(members) \
  layout(push_constant, std430) uniform Push { uvec2 address[NUM_BUFFERS]; members } push;
#define ADDRESS(slot) push.address[slot]
#endif
// Drivers may compute index * size in 32 bits (NVIDIA's 580 does): past 4 GiB each block gets its own address.
layout(constant_id = 15) const uint LARGE = 0;  // 1: a buffer that AT reaches takes 4 GiB or more
// first: 0 where LARGE is. No branches, nor in AT: some drivers' time for a loop doubles with each pair of them.
uvec2 graphopt_advance(uvec2 address, uint first, uint shift) {
  uint carry;
  const uint low = uaddCarry(address.x, first << shift, carry);
  return uvec2(low, address.y + (first >> (32 - shift)) + carry);
}
#define GRAPHOPT_FAR(qualifiers, slot, type, shift, align, name)                                                \
  layout(buffer_reference, std430, buffer_reference_align = align) qualifiers buffer name##_block { type at[]; }; \
  name##_block name##_from(uint first) { return name##_block(graphopt_advance(ADDRESS(slot), first, shift)); }
#define AT(name, first, i) name##_from(mix(0u, uint(first), LARGE != 0)).at[(i) + mix(uint(first), 0u, LARGE != 0)]
#define GRAPHOPT_BUFFER(qualifiers, slot, type, name)                                                        \
  layout(buffer_reference, std430, buffer_reference_align = 8) qualifiers buffer name##_block { type at[]; }; \
  name##_block name = name##_block(ADDRESS(slot));
#elif defined(GRAPHOPT_STORAGE)
#define PARAMETERS(members) \
  layout(push_constant, std430) uniform Push { members } push;
#define GRAPHOPT_BUFFER(qualifiers, slot, type, name) \
  layout(std430, set = 0, binding = slot) qualifiers buffer name##_block { type at[]; } name;
#define GRAPHOPT_FAR(qualifiers, slot, type, shift, align, name) GRAPHOPT_BUFFER(qualifiers, slot, type, name)
#define AT(name, first, i) name.at[(first) + (i)]
#else
#error "define GRAPHOPT_ADDRESS or GRAPHOPT_STORAGE"
#endif

#define INPUT(slot, type, name) GRAPHOPT_BUFFER(restrict readonly, slot, type, name)
#define OUTPUT(slot, type, name) GRAPHOPT_BUFFER(restrict writeonly, slot, type, name)
#define INOUT(slot, type, name) GRAPHOPT_BUFFER(restrict, slot, type, name)
// What may take 4 GiB and more: AT(name, first, i) is entry first + i, where i alone stays small; an entry has
// 2^shift bytes, and begins at a multiple of them: so a float64 is one load. Entries are counted in 32 bits.
#define FAR_INPUT(slot, type, shift, name) GRAPHOPT_FAR(restrict readonly, slot, type, shift, 1 << shift, name)
#define FAR_OUTPUT(slot, type, shift, name) GRAPHOPT_FAR(restrict writeonly, slot, type, shift, 1 << shift, name)
#define GRAPHOPT_LARGE(qualifiers, slot, name) GRAPHOPT_FAR(qualifiers, slot, real, REAL_SHIFT, 1 << REAL_SHIFT, name)
#define LARGE_INPUT(slot, name) GRAPHOPT_LARGE(restrict readonly, slot, name)
#define LARGE_OUTPUT(slot, name) GRAPHOPT_LARGE(restrict writeonly, slot, name)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP_SIZE = 64;
#define LANE gl_LocalInvocationID.x
#define WORKGROUP (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x)

const uint NOTHING = 0xffffffffu;  // an offset that is not there
const uint MAX_DIM = 15;           // of a block

#if defined(GRAPHOPT_DOUBLE)
#define real double
#define REAL_SHIFT 3
#define accumulator double
const real ZERO = 0.0lf, ONE = 1.0lf;
accumulator sum_zero() { return 0.0lf; }
accumulator sum_of(real a) { return a; }
accumulator add(accumulator s, real a) { return s + a; }
accumulator add_product(accumulator s, real a, real b) { return s + a * b; }
accumulator merge(accumulator s, accumulator t) { return s + t; }
real value(accumulator s) { return s; }
#elif defined(GRAPHOPT_MIXED)
#define real float
#define REAL_SHIFT 2
struct accumulator { float hi, lo; };
const real ZERO = 0.0, ONE = 1.0;
accumulator sum_zero() { return accumulator(0.0, 0.0); }
accumulator sum_of(real a) { return accumulator(a, 0.0); }
// Knuth's two-sum: hi + lo + a without loss beyond lo's own rounding.
accumulator add(accumulator s, real a) {
  precise float total = s.hi + a;
  precise float back = total - s.hi;
  precise float error = (s.hi - (total - back)) + (a - back);
  precise float low = s.lo + error;
  return accumulator(total, low);
}
accumulator add_product(accumulator s, real a, real b) {
  precise float product = a * b;
  return add(s, product);
}
accumulator merge(accumulator s, accumulator t) {
  accumulator r = add(s, t.hi);
  precise float low = r.lo + t.lo;
  return accumulator(r.hi, low);
}
real value(accumulator s) { return s.hi + s.lo; }
#else
#error "define GRAPHOPT_DOUBLE or GRAPHOPT_MIXED"
#endif

#endif
