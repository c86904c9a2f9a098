// Instructions of an expression, on one point per invocation: native/src/batch/compiled.h.
//
// Who includes this defines VECTOR(index), a vector in front of the registers, FIRST_REGISTER, the number of these
// vectors, and SCALAR(index). The specialization constant NUM_REGISTERS is theirs, too.
#ifndef GRAPHOPT_BATCH_RUN_GLSL
#define GRAPHOPT_BATCH_RUN_GLSL
#include "batch_opcodes.glsl"

real registers[NUM_REGISTERS];
uint kinds;

real value_of(accumulator s) { return value(s); }  // below, a local has its name
real truth(bool x) { return x ? ONE : ZERO; }
real vector_value(uint index) {
  return index < FIRST_REGISTER ? VECTOR(index) : registers[index - FIRST_REGISTER];
}
real operand(uint k, uint index) {
  return bitfieldExtract(kinds, int(8 + k), 1) != 0 ? SCALAR(index) : vector_value(index);
}

void run(uint begin, uint end) {
  for (uint at = begin; at < end; ++at) {
    const uvec4 w = code.at[at];
    kinds = w.x;
    const uint op = w.x & 0xffu;
    const real x = operand(0, w.y & 0xffffu);
    const real y = op < OP_NEG || op == OP_SELECT ? operand(1, w.y >> 16) : ZERO;
    real z = ZERO;
    switch (op) {
      case OP_ADD: z = x + y; break;
      case OP_SUB: z = x - y; break;
      case OP_MUL: z = x * y; break;
      case OP_DIV: z = x / y; break;
      case OP_POW: z = math_pow(x, y); break;
      case OP_ATAN2: z = math_atan2(x, y); break;
      case OP_MIN: z = math_min(x, y); break;
      case OP_MAX: z = math_max(x, y); break;
      case OP_LT: z = truth(x < y); break;
      case OP_LE: z = truth(x <= y); break;
      case OP_EQ: z = truth(x == y); break;
      case OP_AND: z = truth(x != ZERO && y != ZERO); break;
      case OP_OR: z = truth(x != ZERO || y != ZERO); break;
      case OP_NEG: z = -x; break;
      case OP_ABS: z = abs(x); break;
      case OP_SIGN: z = math_sign(x); break;
      case OP_FLOOR: z = floor(x); break;
      case OP_NOT: z = truth(x == ZERO); break;
      case OP_SQRT: z = sqrt(x); break;
      case OP_EXP: z = math_exp(x); break;
      case OP_LOG: z = math_log(x); break;
      case OP_SIN: z = math_sin(x); break;
      case OP_COS: z = math_cos(x); break;
      case OP_TAN: z = math_tan(x); break;
      case OP_ASIN: z = math_asin(x); break;
      case OP_ACOS: z = math_acos(x); break;
      case OP_ATAN: z = math_atan(x); break;
      case OP_SELECT: z = x != ZERO ? y : operand(2, w.z); break;
      default: z = real(FLOAT_NAN); break;  // no operation
    }
    registers[(w.x >> 16) - FIRST_REGISTER] = z;
  }
}

#endif
