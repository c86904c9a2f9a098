// What the primitives (prim_*.comp, graphopt/device/primitives.py) share: words of buffers of any size, and sums
// over a workgroup. Integers only, so every order of additions gives the same bits.
#ifndef GRAPHOPT_PRIM_GLSL
#define GRAPHOPT_PRIM_GLSL

// WORDS(qualifiers, slot, name) declares a buffer of uint; WORD(name, i) is word i, also past 4 GiB where LARGE
// is set.
#if defined(GRAPHOPT_ADDRESS)
#define WORDS(qualifiers, slot, name)                                                                        \
  layout(buffer_reference, std430, buffer_reference_align = 4) qualifiers buffer name##_words { uint at[]; }; \
  name##_words name##_from(uint first) { return name##_words(graphopt_advance(ADDRESS(slot), first, 2)); }
#define WORD(name, i) name##_from(LARGE != 0 ? (i) : 0u).at[LARGE != 0 ? 0u : (i)]
#else
#define WORDS(qualifiers, slot, name) \
  layout(std430, set = 0, binding = slot) qualifiers buffer name##_words { uint at[]; } name;
#define WORD(name, i) name.at[i]
#endif

shared uint prim_scratch[WORKGROUP_SIZE];

// Sum of `mine` of the invocations before this one; `total`: of all. Every invocation calls it.
uint workgroup_before(uint mine, out uint total) {
  barrier();  // earlier readers are done
  prim_scratch[LANE] = mine;
  barrier();
  for (uint step = 1; step < WORKGROUP_SIZE; step <<= 1) {
    const uint other = LANE >= step ? prim_scratch[LANE - step] : 0u;
    barrier();
    prim_scratch[LANE] += other;
    barrier();
  }
  total = prim_scratch[WORKGROUP_SIZE - 1];
  return prim_scratch[LANE] - mine;
}

#endif
