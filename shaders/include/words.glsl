// Buffers of `packed_word` that begin at multiples of 16 bytes. Said to be so aligned, a word is one load; with
// the 8 bytes of common.glsl it is two, which costs 70 % more time where loads are what limits.
#ifndef GRAPHOPT_WORDS_GLSL
#define GRAPHOPT_WORDS_GLSL

#if defined(GRAPHOPT_ADDRESS)
#define WORDS(qualifiers, slot, name)                                                                            \
  layout(buffer_reference, std430, buffer_reference_align = 16) qualifiers buffer name##_block { packed_word at[]; }; \
  name##_block name = name##_block(ADDRESS(slot));
#else
#define WORDS(qualifiers, slot, name) GRAPHOPT_BUFFER(qualifiers, slot, packed_word, name)
#endif

#endif
