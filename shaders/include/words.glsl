// Buffers of `packed_word` that begin at multiples of 16 bytes. Said to be so aligned, a word is one load; with
// the 8 bytes of common.glsl it is two, which costs 70 % more time where loads are what limits.
#ifndef GRAPHOPT_WORDS_GLSL
#define GRAPHOPT_WORDS_GLSL

#ifndef WORD_SHIFT
#define WORD_SHIFT 4  // of 16 bytes: what one load brings
#endif
// AT(name, first, i) reaches words also past 4 GiB.
#define WORDS(qualifiers, slot, name) GRAPHOPT_FAR(qualifiers, slot, packed_word, WORD_SHIFT, 16, name)

#endif
