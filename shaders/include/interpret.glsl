// Runs a program (graphopt/codegen/interpreter.py) on edges: one invocation per edge, all on the same instruction.
// Row r of the scratch buffer holds a register of all edges of the chunk, one after the other, so every access is
// coalesced. interpret_load has put the inputs there, gather_sum or interpret_store take the outputs from there.
// chi2_row != NOTHING: partial[first_partial + g] = sum of that row over the edges of workgroup g.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#include "common.glsl"
#include "interpret_wide.glsl"
#include "interpret_opcodes.glsl"
PARAMETERS(uint num_edges; uint stride; uint num_constants; uint chi2_row; uint first_partial;)
INPUT(0, uvec4, code)       // (num_words / 4,): 8 half words each
INPUT(1, uint, words)       // the same buffer
INPUT(2, wide, constants)   // (num_constants,)
INOUT(3, wide, scratch)     // (num_rows, stride)
OUTPUT(4, wide, partial)    // (num_workgroups,)
INPUT(5, uvec4, planes)     // images by handle: first pixel, width (0: no such plane), height; w of plane 0: their number
INPUT(6, float, pixels)
#include "sampling.glsl"

shared wide sums[WORKGROUP_SIZE];
uint edge;

wide load(uint r) {
  return r < push.num_constants ? constants.at[r] : scratch.at[(r - push.num_constants) * push.stride + edge];
}
void store(uint r, wide x) { scratch.at[(r - push.num_constants) * push.stride + edge] = x; }

uint low(uint w) { return w & 0xffffu; }
uint high(uint w) { return w >> 16; }
uint half_word(uint i) { return bitfieldExtract(words.at[i >> 1], int(i & 1) * 16, 16); }
wide operand(uint i) { return load(half_word(i)); }

// SUM with the half words d, np, nn, xp, xn in w; its operands start at `at` (16-byte units). Returns their length.
// Four products at a time, so that eight loads are in flight; what is read behind the last one is not used.
uint run_sum(uvec4 w, uint at) {
  const uint num_pos = low(w.y), num_products = num_pos + high(w.y), num_plus = low(w.z);
  const uint first = 8 * at + 2 * num_products, num_terms = num_plus + high(w.z);
  wide s = num_plus > 0 ? operand(first) : w_number(0.0);
  for (uint k = 0; k < num_products; k += 4) {
    const uvec4 pairs = code.at[at + k / 4];
    wide a[4], b[4];
    [[unroll]] for (uint n = 0; n < 4; ++n) {
      a[n] = load(low(pairs[n]));
      b[n] = load(high(pairs[n]));
    }
    [[unroll]] for (uint n = 0; n < 4; ++n) {
      if (k + n < num_products) s = w_fma(k + n < num_pos ? a[n] : w_neg(a[n]), b[n], s);
    }
  }
  for (uint k = num_plus > 0 ? 1 : 0; k < num_terms; ++k) {
    const wide x = operand(first + k);
    s = k < num_plus ? w_add(s, x) : w_sub(s, x);
  }
  store(high(w.x), s);
  return (2 * num_products + num_terms + 7) / 8;
}

// BLOCK with the half words m, n, np, nn in w; operands as for SUM. All sources are read before any destination is
// written: they may be the same registers.
uint run_block(uvec4 w, uint at) {
  const uint rows = high(w.x), columns = low(w.y), num_pos = high(w.y), depth = num_pos + low(w.z);
  const uint left = 8 * at + rows * columns, right = left + rows * depth;
  wide s[9];
  [[unroll]] for (uint k = 0; k < 9; ++k) s[k] = w_number(0.0);
  for (uint r = 0; r < depth; ++r) {
    wide a[3], b[3];
    [[unroll]] for (uint i = 0; i < 3; ++i) {
      a[i] = operand(left + min(i, rows - 1) * depth + r);
      b[i] = operand(right + min(i, columns - 1) * depth + r);
      if (r >= num_pos) a[i] = w_neg(a[i]);
    }
    [[unroll]] for (uint k = 0; k < 9; ++k) {
      if (k / 3 < rows && k % 3 < columns) s[k] = w_fma(a[k / 3], b[k % 3], s[k]);
    }
  }
  [[unroll]] for (uint k = 0; k < 9; ++k) {
    if (k / 3 < rows && k % 3 < columns) store(half_word(8 * at + k / 3 * columns + k % 3), s[k]);
  }
  return (rows * columns + (rows + columns) * depth + 7) / 8;
}

// The other opcodes: w has opcode and destination, then up to six sources.
void run_plain(uvec4 w) {
  const uint d = high(w.x);
  const wide x = load(low(w.y));
#define Y load(high(w.y))
#define Z load(low(w.z))
  switch (low(w.x)) {
    case COPY: store(d, x); break;
    case ADD: store(d, w_add(x, Y)); break;
    case SUB: store(d, w_sub(x, Y)); break;
    case MUL: store(d, w_mul(x, Y)); break;
    case NEG: store(d, w_neg(x)); break;
    case FMA: store(d, w_fma(x, Y, Z)); break;
    case FMS: store(d, w_fma(x, Y, w_neg(Z))); break;
    case FNMA: store(d, w_fma(w_neg(x), Y, Z)); break;
    case DOT2: store(d, w_fma(Z, load(high(w.z)), w_mul(x, Y))); break;
    case DOT3: store(d, w_fma(load(low(w.w)), load(high(w.w)), w_fma(Z, load(high(w.z)), w_mul(x, Y)))); break;
    case RECIP: store(d, w_recip(x)); break;
    case SQRT: store(d, w_sqrt(x)); break;
    case SIN: store(d, math_sin(x)); break;
    case COS: store(d, math_cos(x)); break;
    case TAN: store(d, math_tan(x)); break;
    case ASIN: store(d, math_asin(x)); break;
    case ACOS: store(d, math_acos(x)); break;
    case ATAN: store(d, math_atan(x)); break;
    case ATAN2: store(d, math_atan2(x, Y)); break;
    case EXP: store(d, math_exp(x)); break;
    case LOG: store(d, math_log(x)); break;
    case POW: store(d, math_pow(x, Y)); break;
    case ABS: store(d, w_abs(x)); break;
    case SIGN: store(d, math_sign(x)); break;
    case FLOOR: store(d, w_floor(x)); break;
    case MIN: store(d, math_min(x, Y)); break;
    case MAX: store(d, math_max(x, Y)); break;
    case LT: store(d, w_lt(x, Y)); break;
    case LE: store(d, w_le(x, Y)); break;
    case EQ: store(d, w_eq(x, Y)); break;
    case AND: store(d, w_and(x, Y)); break;
    case OR: store(d, w_or(x, Y)); break;
    case NOT: store(d, w_not(x)); break;
    case SELECT: store(d, w_select(x, Y, Z)); break;
    case SINCOS: {  // two destinations: the source is the next half word
      const wide angle = load(high(w.y));
      wide sine, cosine;
      math_sincos(angle, sine, cosine);
      store(d, sine);
      store(low(w.y), cosine);
      break;
    }
    case SAMPLE:
    case SAMPLE_CUBIC: {  // value, by_u, by_v; plane, u, v
      const wide plane = load(low(w.z)), u = load(high(w.z)), v = load(low(w.w));
      wide value, by_u, by_v;
      if (low(w.x) == SAMPLE) sample_bilinear(plane, u, v, value, by_u, by_v);
      else sample_bicubic(plane, u, v, value, by_u, by_v);
      store(d, value);
      store(low(w.y), by_u);
      store(high(w.y), by_v);
      break;
    }
    default: store(d, w_number(FLOAT_NAN)); break;  // no opcode
  }
}

void main() {
  edge = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (edge < push.num_edges) {
    for (uint at = 0;;) {
      const uvec4 w = code.at[at++];
      const uint opcode = low(w.x);
      if (opcode == END) break;
      if (opcode == SUM) at += run_sum(w, at);
      else if (opcode == BLOCK) at += run_block(w, at);
      else run_plain(w);
    }
  }
  if (push.chi2_row == NOTHING) return;
  sums[LANE] = edge < push.num_edges ? scratch.at[push.chi2_row * push.stride + edge] : w_number(0.0);
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    barrier();
    if (LANE < s) sums[LANE] = w_add(sums[LANE], sums[LANE + s]);
  }
  if (LANE == 0) partial.at[push.first_partial + WORKGROUP] = sums[0];
}
