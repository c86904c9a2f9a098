#version 450
// What Levenberg-Marquardt does with a trial, so that the next one can follow in the same submission: accepts it or
// not, lambda after it, whether to go on; and a line of a log, from which the host does the same again.
//   NIELSEN  rho = (chi2 - chi2_new) / (gain + 1e-3); lambda *= max(lower, min(1 - (2 rho - 1)^3, upper)), or *= nu
//   else     rho = (chi2 - chi2_new) / gain; the schedule of optimizer/scaled_damping.py
// Rounded as the host rounds it: every operation for itself. One invocation; numbers as words, since the rule's are
// float32 in mixed precision, those of the state never.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 8
#include "common.glsl"
#include "pcg_state.glsl"
layout(constant_id = 1) const uint NARROW = 0;  // rule, scalars and largest are float32, sums two of them
PARAMETERS(uint trial;)
INOUT(0, uint, state)        // chain.py says where what is
INPUT(1, uint, total)        // chi2 after the step
INPUT(2, uint, scalars)      // gain, step size
INPUT(3, uint, largest)      // |H_ii|, |b_i| of the linearization it was made from
INPUT(4, uint, factorized)   // [0]: 0 if all pivots were good
INPUT(5, uint, elimination)
INOUT(6, uint, rule)         // [0]: lambda
OUTPUT(7, uint, lines)

const uint NUM_WORDS = 20;
const uint IS_OVER = 0, KEEPS_H = 1, IS_REJECTED = 2, NIELSEN = 3, TRIALS = 4, MAX_TRIALS = 5, ITERATIONS_LEFT = 6;
const uint SOURCE = 7, CHI2 = 8, LAMBDA = 10, NU = 12, FUNCTION = 14, STEP = 16, LOWER = 18, UPPER = 20;

#if defined(GRAPHOPT_DOUBLE)
double number(uint place) { return packDouble2x32(uvec2(state.at[place], state.at[place + 1])); }

void set_number(uint place, double x) {
  const uvec2 words = unpackDouble2x32(x);
  state.at[place] = words.x;
  state.at[place + 1] = words.y;
}

double sum_at(uint place) {
  const uvec2 words = uvec2(scalars.at[2 * place], scalars.at[2 * place + 1]);
  if (NARROW == 0) return packDouble2x32(words);
  precise double both = double(uintBitsToFloat(words.x)) + double(uintBitsToFloat(words.y));
  return both;
}

bool is_finite(double x) { return !(isnan(x) || isinf(x)); }

// a b = product + error, exactly (Dekker, Veltkamp): the device may not have a fused multiplication.
double product_of(double a, double b, out double error) {
  precise double t = 134217729.0lf * a;
  precise double a_high = t - (t - a);
  precise double a_low = a - a_high;
  precise double u = 134217729.0lf * b;
  precise double b_high = u - (u - b);
  precise double b_low = b - b_high;
  precise double product = a * b;
  precise double rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
  error = rest;
  return product;
}

// x^3 rounded once, as pow does.
double cube(double x) {
  double first, second;
  const double square = product_of(x, x, first);
  const double high = product_of(square, x, second);
  precise double rest = second + first * x;
  precise double result = high + rest;
  return result;
}

double shrinking(double rho) {
  precise double twice = 2.0lf * rho - 1.0lf;
  precise double result = 1.0lf - cube(twice);
  return result;
}

double scaled_factor(double rho, uint trial) {
  if (trial > 1) {
    const double factor = shrinking(rho);
    return factor > 1.0lf / 3.0lf ? factor : 1.0lf / 3.0lf;
  }
  if (rho > 0.5lf) return rho > 0.75lf ? 0.2lf : 1.0lf / 3.0lf;
  return rho > 0.25lf ? 1.0lf : 2.0lf;
}

double nielsen_factor(double rho) {
  const double factor = shrinking(rho), upper = number(UPPER), lower = number(LOWER);
  const double limited = upper < factor ? upper : factor;
  return limited > lower ? limited : lower;
}

// Nothing that ends a run or lets the host look at it first: what it accepts has lowered chi2 by enough.
bool goes_on(double before, double after, double size) {
  const double tolerance = number(FUNCTION), step = number(STEP);
  precise double least = tolerance * abs(before);
  if (state.at[ITERATIONS_LEFT] <= 1) return false;
  if (tolerance > 0.0lf && abs(before - after) <= least) return false;
  return !(step > 0.0lf && size <= step);
}

void main() {
  if (LANE != 0) return;
  const uint line = NUM_WORDS * push.trial;
  lines.at[line] = 0;
  state.at[IS_REJECTED] = 0;
  if (state.at[IS_OVER] != 0) return;
  const bool solved = factorized.at[0] == 0 && elimination.at[INDEFINITE] == 0;
  const double before = number(CHI2), gain = sum_at(0), size = sum_at(1);
  const double after = packDouble2x32(uvec2(total.at[0], total.at[1]));
  double lambda = number(LAMBDA), nu = number(NU);
  const uvec2 old = unpackDouble2x32(lambda);
  const uint trials = state.at[TRIALS] + 1;
  const bool nielsen = state.at[NIELSEN] != 0;
  const double infinity = packDouble2x32(uvec2(0u, 0x7ff00000u));

  precise double decrease = before - after;
  precise double expected = nielsen ? gain + 1e-3lf : gain;
  precise double ratio = decrease / expected;
  const double rho = nielsen || gain > 0.0lf ? ratio : -infinity;
  const bool accepted = solved && is_finite(after) && rho > (nielsen ? 0.0lf : 1e-3lf);
  bool on;
  if (accepted) {
    precise double next = lambda * (nielsen ? nielsen_factor(rho) : scaled_factor(rho, trials));
    lambda = !nielsen && next < 1e-16lf ? 1e-16lf : next;
    nu = 2.0lf;
    on = goes_on(before, after, size);
  } else {
    precise double next = lambda * nu;
    precise double twice = 2.0lf * nu;
    lambda = next;
    nu = twice;
    precise double least = 1e-14lf * before;
    const bool may_gain = !solved || (nielsen ? !is_finite(rho) || rho < 0.0lf : gain > least);
    on = may_gain && trials < state.at[MAX_TRIALS] && (nielsen ? is_finite(lambda) : lambda < 1e32lf);
  }

  lines.at[line] = 1;
  lines.at[line + 1] = uint(accepted);
  lines.at[line + 2] = uint(solved);
  lines.at[line + 3] = state.at[SOURCE];
  lines.at[line + 4] = old.x;
  lines.at[line + 5] = old.y;
  lines.at[line + 6] = total.at[0];
  lines.at[line + 7] = total.at[1];
  for (uint i = 0; i < 4; ++i) {
    lines.at[line + 8 + i] = scalars.at[i];
    lines.at[line + 12 + i] = largest.at[i];
  }
  lines.at[line + 16] = rule.at[0];
  lines.at[line + 17] = NARROW != 0 ? 0 : rule.at[1];

  set_number(LAMBDA, lambda);
  set_number(NU, nu);
  if (accepted) {
    set_number(CHI2, after);
    state.at[SOURCE] = push.trial + 1;
    state.at[ITERATIONS_LEFT] -= 1;
  }
  state.at[TRIALS] = accepted ? 0 : trials;
  state.at[IS_OVER] = on ? 0 : 1;
  state.at[KEEPS_H] = on && accepted ? 0 : 1;
  state.at[IS_REJECTED] = on && !accepted ? 1 : 0;
  if (NARROW != 0) {
    rule.at[0] = floatBitsToUint(float(lambda));
  } else {
    const uvec2 words = unpackDouble2x32(lambda);
    rule.at[0] = words.x;
    rule.at[1] = words.y;
  }
}
#else
void main() {}  // lambda is a float64 everywhere: devices without have no use for it
#endif
