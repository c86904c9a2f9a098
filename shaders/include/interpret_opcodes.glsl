// The instruction set of the interpreter: an opcode is the index in INSTRUCTIONS of graphopt/codegen/bytecode.py, which
// documents it; COPY is added by graphopt/codegen/interpreter.py. A test compares the lists.
#ifndef GRAPHOPT_INTERPRET_OPCODES_GLSL
#define GRAPHOPT_INTERPRET_OPCODES_GLSL

const uint END = 0, ADD = 1, SUB = 2, MUL = 3, NEG = 4, FMA = 5, FMS = 6, FNMA = 7, DOT2 = 8, DOT3 = 9;
const uint SUM = 10, BLOCK = 11, RECIP = 12, SQRT = 13, SIN = 14, COS = 15, SINCOS = 16, TAN = 17, ASIN = 18, ACOS = 19;
const uint ATAN = 20, ATAN2 = 21, EXP = 22, LOG = 23, POW = 24, ABS = 25, SIGN = 26, FLOOR = 27, MIN = 28, MAX = 29;
const uint LT = 30, LE = 31, EQ = 32, AND = 33, OR = 34, NOT = 35, SELECT = 36, ROBUST = 37;
const uint SAMPLE = 38, SAMPLE_CUBIC = 39, COPY = 65535;

#endif
