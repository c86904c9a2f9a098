// The instruction set. graphopt/codegen/bytecode.py is its documentation; a test compares the two lists.
#pragma once

#include <cstdint>

// X(name, number of destinations, number of sources); -1: counted in the code.
#define GRAPHOPT_OPCODES(X) \
  X(END, 0, 0)              \
  X(ADD, 1, 2)              \
  X(SUB, 1, 2)              \
  X(MUL, 1, 2)              \
  X(NEG, 1, 1)              \
  X(FMA, 1, 3)              \
  X(FMS, 1, 3)              \
  X(FNMA, 1, 3)             \
  X(DOT2, 1, 4)             \
  X(DOT3, 1, 6)             \
  X(SUM, 1, -1)             \
  X(BLOCK, -1, -1)          \
  X(RECIP, 1, 1)            \
  X(SQRT, 1, 1)             \
  X(SIN, 1, 1)              \
  X(COS, 1, 1)              \
  X(SINCOS, 2, 1)           \
  X(TAN, 1, 1)              \
  X(ASIN, 1, 1)             \
  X(ACOS, 1, 1)             \
  X(ATAN, 1, 1)             \
  X(ATAN2, 1, 2)            \
  X(EXP, 1, 1)              \
  X(LOG, 1, 1)              \
  X(POW, 1, 2)              \
  X(ABS, 1, 1)              \
  X(SIGN, 1, 1)             \
  X(FLOOR, 1, 1)            \
  X(MIN, 1, 2)              \
  X(MAX, 1, 2)              \
  X(LT, 1, 2)               \
  X(LE, 1, 2)               \
  X(EQ, 1, 2)               \
  X(AND, 1, 2)              \
  X(OR, 1, 2)               \
  X(NOT, 1, 1)              \
  X(SELECT, 1, 3)           \
  X(ROBUST, 2, 1)           \
  X(SAMPLE, 3, 3)           \
  X(SAMPLE_CUBIC, 3, 3)

namespace graphopt::vm {

enum Opcode : std::uint16_t {
#define X(name, destinations, sources) OP_##name,
  GRAPHOPT_OPCODES(X)
#undef X
      NUM_OPCODES
};

inline constexpr int kLargestBlockSide = 3;

struct OpcodeShape {
  const char* name;
  int num_destinations;
  int num_sources;
};

inline constexpr OpcodeShape kOpcodeShapes[] = {
#define X(name, destinations, sources) {#name, destinations, sources},
    GRAPHOPT_OPCODES(X)
#undef X
};

}  // namespace graphopt::vm
