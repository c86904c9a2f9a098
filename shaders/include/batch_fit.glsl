// One step of Levenberg-Marquardt for many fits: native/src/batch/fit.h has the formulas and the tests of convergence.
// One workgroup per fit, an expression from one start; its invocations stride over the points.
//
//   r = value - target, J = derivatives at `trial`;  sums: r'r, J'r, J'J;  one invocation decides and makes the next trial
//
// `lm` is the type of the normal equations: float64, or float32 where the device has none.
layout(constant_id = 1) const uint NUM_REGISTERS = 16;
layout(constant_id = 2) const uint N = 1;            // parameters
layout(constant_id = 3) const uint NUM_SCALARS = 1;  // at least one
const uint NORMAL = N * (N + 1) / 2, SUMS = 1 + N + NORMAL, ROOM = N > 0 ? N : 1;
const uint POINT = 0, TRIAL = N, SCALE = 2 * N, GRADIENT = 3 * N, MATRIX = 4 * N, SQUARE = MATRIX + NORMAL;
const uint LAMBDA = SQUARE + 1, GROWTH = SQUARE + 2, PREDICTED = SQUARE + 3;
const uint CONVERGED = 1, MAX_ITERATIONS = 2, NON_FINITE = 3, NO_DECREASE = 4;  // 0: goes on
PARAMETERS(uint first_item; uint num_points; uint stride; uint num_columns; uint has_target; uint most;
           uint function_tolerance; uint parameter_tolerance; uint gradient_tolerance;)
INPUT(0, uvec4, code)     // as batch.comp's
INPUT(1, uvec4, table)    // 3 per expression: begins of the stages, end; constants, shared, first of both; first output
INPUT(2, uint, items)     // fit of an item
INPUT(3, real, data)      // (num_columns, stride)
INPUT(4, real, target)    // (num_points,)
INPUT(5, real, numbers)   // constants
INPUT(6, uint, words)     // vectors that become scalars; outputs: index | is scalar << 16
INPUT(7, uvec2, fits)     // expression, first number of the state
INOUT(8, lm, state)
INOUT(9, uvec2, outcome)  // status, trials evaluated

shared real shared_scalars[NUM_SCALARS];
uint point, first_register, first;
bool of_parameters;
#define FIRST_REGISTER first_register
#define VECTOR(index) (of_parameters ? real(state.at[first + TRIAL + (index)]) : data.at[(index) * push.stride + point])
#define SCALAR(index) shared_scalars[index]
#include "batch_run.glsl"

real output_value(uint word) {
  return (word >> 16) != 0 ? shared_scalars[word & 0xffffu] : vector_value(word & 0xffffu);
}
bool is_finite_lm(lm x) { return abs(x) <= LM_LARGEST; }  // false for NaN
lm tolerance(uint bits) { return lm(uintBitsToFloat(bits)); }
lm at(uint k) { return state.at[first + k]; }
uint diagonal(uint i) { return MATRIX + i * N - i * (i + 1) / 2 + i; }

// x of (J'J + lambda D) x = -J'r by Cholesky; false: not positive definite.
bool solve(lm lambda, out lm x[ROOM]) {
  lm l[ROOM * ROOM];
  for (uint i = 0, k = MATRIX; i < N; ++i)
    for (uint j = i; j < N; ++j, ++k) l[j * N + i] = at(k);
  for (uint j = 0; j < N; ++j) {
    const lm scale = at(SCALE + j);
    lm pivot = l[j * N + j] + lambda * (scale > LM(0.0) ? scale : LM(1.0));  // without influence: it stays
    const lm least = pivot * LM_EPSILON;
    for (uint k = 0; k < j; ++k) pivot -= l[j * N + k] * l[j * N + k];
    if (!(pivot > least) || !is_finite_lm(pivot)) return false;
    l[j * N + j] = sqrt(pivot);
    for (uint i = j + 1; i < N; ++i) {
      lm sum = l[i * N + j];
      for (uint k = 0; k < j; ++k) sum -= l[i * N + k] * l[j * N + k];
      l[i * N + j] = sum / l[j * N + j];
    }
  }
  for (uint i = 0; i < N; ++i) {
    lm sum = -at(GRADIENT + i);
    for (uint k = 0; k < i; ++k) sum -= l[i * N + k] * x[k];
    x[i] = sum / l[i * N + i];
  }
  for (uint i = N; i-- > 0;) {
    for (uint k = i + 1; k < N; ++k) x[i] -= l[k * N + i] * x[k];
    x[i] /= l[i * N + i];
  }
  return true;
}

// Next trial; what it returns is a status.
uint next(lm lambda, lm growth, uint trials) {
  if (trials == push.most + 1) return MAX_ITERATIONS;
  lm x[ROOM];
  while (!solve(lambda, x)) {
    lambda *= growth;
    growth *= LM(2.0);
    if (!(lambda < LM(1e16))) return NO_DECREASE;
  }
  if (!(lambda < LM(1e16))) return NO_DECREASE;
  lm predicted = LM(0.0);
  for (uint i = 0; i < N; ++i) {
    const lm scale = at(SCALE + i);
    predicted += x[i] * (lambda * (scale > LM(0.0) ? scale : LM(1.0)) * x[i] - at(GRADIENT + i));
    state.at[first + TRIAL + i] = at(POINT + i) + x[i];
  }
  state.at[first + LAMBDA] = lambda;
  state.at[first + GROWTH] = growth;
  state.at[first + PREDICTED] = predicted;
  return 0;
}

// The gradient vanishes beside the residual and the columns of J.
bool is_flat() {
  lm largest = LM(0.0);
  for (uint i = 0; i < N; ++i) {
    const lm square = at(diagonal(i));
    if (square > LM(0.0)) largest = max(largest, abs(at(GRADIENT + i)) / sqrt(square));
  }
  return at(SQUARE) == LM(0.0) || largest <= tolerance(push.gradient_tolerance) * sqrt(at(SQUARE));
}

// Take the sums at the trial; trials: evaluated before. Returns a status.
uint take(lm sums[SUMS], uint trials) {
  bool finite = true;
  for (uint k = 0; k < SUMS; ++k) finite = finite && is_finite_lm(sums[k]);
  const lm square = at(SQUARE), predicted = at(PREDICTED), lambda = at(LAMBDA), growth = at(GROWTH);
  const lm decrease = square - sums[0];
  if (trials > 0 && !(finite && sums[0] < square && decrease >= LM(1e-4) * predicted)) {
    if (predicted <= LM(8.0) * LM(REAL_EPSILON) * square) return CONVERGED;  // what is left to gain is rounding
    return next(lambda * growth, growth * LM(2.0), trials + 1);
  }
  lm step = LM(0.0), size = LM(0.0);
  for (uint i = 0; i < N; ++i) {
    const lm trial = at(TRIAL + i), moved = trial - at(POINT + i), scale = at(SCALE + i);
    step += scale * moved * moved;
    size += scale * trial * trial;
    state.at[first + POINT + i] = trial;
    state.at[first + GRADIENT + i] = sums[1 + i];
  }
  for (uint k = 0; k < NORMAL; ++k) state.at[first + MATRIX + k] = sums[1 + N + k];
  state.at[first + SQUARE] = sums[0];
  if (trials == 0 && !finite) return NON_FINITE;
  for (uint i = 0; i < N; ++i) state.at[first + SCALE + i] = max(at(SCALE + i), at(diagonal(i)));
  if (trials == 0) return is_flat() ? CONVERGED : next(LM(1e-3), LM(2.0), 1);
  const lm ratio = decrease / predicted, least = tolerance(push.function_tolerance) * square;
  const bool is_small = decrease <= least && predicted <= least && ratio <= LM(2.0);
  const bool is_short = sqrt(step) <= tolerance(push.parameter_tolerance) * sqrt(size);
  if (is_small || is_short || is_flat()) return CONVERGED;
  const lm bend = LM(2.0) * ratio - LM(1.0);
  return next(lambda * max(LM(1.0) / LM(3.0), LM(1.0) - bend * bend * bend), LM(2.0), trials + 1);
}

void main() {
  const uint fit = items.at[push.first_item + WORKGROUP];
  const uvec2 before = outcome.at[fit];
  if (before.x != 0) return;
  const uint expression = fits.at[fit].x;
  first = fits.at[fit].y;
  const uvec4 stages = table.at[3 * expression], counts = table.at[3 * expression + 1];
  const uint outputs = table.at[3 * expression + 2].x;
  for (uint k = LANE; k < counts.x; k += WORKGROUP_SIZE) shared_scalars[k] = numbers.at[counts.z + k];
  barrier();
  of_parameters = true;
  first_register = N;
  run(stages.x, stages.y);  // by all invocations alike
  if (LANE == 0)
    for (uint k = 0; k < counts.y; ++k) shared_scalars[counts.x + k] = vector_value(words.at[counts.w + k]);
  barrier();
  of_parameters = false;
  first_register = push.num_columns;
  accumulator mine[SUMS];
  for (uint k = 0; k < SUMS; ++k) mine[k] = sum_zero();
  for (uint own = LANE; own < push.num_points; own += WORKGROUP_SIZE) {
    point = own;
    run(stages.y, stages.w);
    real row[1 + ROOM];
    row[0] = output_value(words.at[outputs]) - (push.has_target != 0 ? target.at[own] : ZERO);
    for (uint k = 0; k < N; ++k) row[1 + k] = output_value(words.at[outputs + 1 + k]);
    for (uint k = 0; k < 1 + N; ++k) mine[k] = add_product(mine[k], row[0], row[k]);
    for (uint i = 0, k = 1 + N; i < N; ++i)
      for (uint j = i; j < N; ++j, ++k) mine[k] = add_product(mine[k], row[1 + i], row[1 + j]);
  }
  lm sums[SUMS];
  for (uint k = 0; k < SUMS; ++k) sums[k] = LM_OF(workgroup_sum(mine[k]));
  if (LANE != 0) return;
  const uint status = take(sums, before.y);
  outcome.at[fit] = uvec2(status, before.y + 1);
}
