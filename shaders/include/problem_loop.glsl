// Optimization of a whole small problem by one workgroup: the formulas, their order and the tests of
// native/src/vm/small_loop.cpp, so that both take the same decisions.
//
//   (H + D) dx = b by L Delta L' within the envelope of H, some columns (a panel) at a time; b is a row of the
//   matrix, so that the factorization solves with L as well
//
// Generated before this: linearize() -> chi2, H and b at the estimates; move(), which makes the estimates after a
// step from dx; moved_chi2(), of these. METHOD is one of those below. What is generated is
// called at one place each: compilers copy it to where it is called.
#ifndef GRAPHOPT_PROBLEM_LOOP_GLSL
#define GRAPHOPT_PROBLEM_LOOP_GLSL

// How a run has ended, as LoopEnding of small_loop.h; RUNNING: not yet
const uint RULES = 0, CONVERGED = 1, NO_IMPROVEMENT = 2, LINEAR_SOLVER_FAILURE = 3, NON_FINITE = 4, RUNNING = 9;
#define GAUSS_NEWTON 0
#define LEVENBERG 1
#define DOGLEG 2
#define NEWTON 3   // these two: problem_newton.glsl
#define ADJOINT 4
const uint COLUMNS = WORKGROUP_SIZE < 64 ? 4 : 8;  // invocations along a row of the factor

// Entries of `options`
#define FUNCTION_TOLERANCE options.at[0]
#define GRADIENT_TOLERANCE options.at[1]
#define STEP_TOLERANCE options.at[2]
#define TAU options.at[3]
#define LOWER_SCALE options.at[4]
#define UPPER_SCALE options.at[5]
#define LAMBDA_FACTOR options.at[6]
#define INITIAL_DELTA options.at[7]
#define LEAST_LAMBDA options.at[8]    // of H's largest diagonal entry, where a run goes on
#define SCALE_OFFSET options.at[9]    // g2o's 1e-3
#define MIN_LAMBDA options.at[10]     // of the dogleg, as MAX_LAMBDA
#define MAX_LAMBDA options.at[11]
#define LEAST_GAIN options.at[12]
#define PROMISE_AT 13                 // dampings to try, relative to the diagonal
const uint NUM_PROMISES = 4;

// What goes on from one submission to the next
wide initial_chi2, chi2, lambda, nu, initial_lambda, delta, at_last_end, before;
uint iterations, trials, ending;
uint settled;  // how the run has ended that may go on; RUNNING: it has not
bool is_begun, is_first, was_positive_definite;

bool is_accepted = false;
wide step_size;

wide number(float x) { return to_wide(real(x)); }
bool is_positive(wide x) { return wide_lt(WIDE_ZERO, x); }

// Largest absolute value, NaN if there is one, and sums of products, by all invocations together.
#define DEFINE_LARGEST(name, array)                                                                          \
  wide name() {                                                                                              \
    wide mine = WIDE_ZERO;                                                                                   \
    for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE) mine = largest_of(mine, wide_abs(array[i]));           \
    return workgroup_largest(mine);                                                                          \
  }
DEFINE_LARGEST(largest_step, dx)
DEFINE_LARGEST(largest_gradient, gradient)
DEFINE_LARGEST(largest_diagonal, diagonal)
#define DEFINE_SUM(name, term)                                                                               \
  wide name() {                                                                                              \
    wide mine = WIDE_ZERO;                                                                                   \
    for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE) mine = wide_add(mine, term);                           \
    return workgroup_sum(mine);                                                                              \
  }
DEFINE_SUM(step_squared, wide_mul(dx[i], dx[i]))
DEFINE_SUM(gradient_squared, wide_mul(gradient[i], gradient[i]))
DEFINE_SUM(newton_squared, wide_mul(newton[i], newton[i]))
DEFINE_SUM(gradient_step, wide_mul(gradient[i], dx[i]))

bool has_finite_system() {
  for (uint i = 0; i < DIM; ++i)
    if (!wide_is_finite(gradient[i]) || !wide_is_finite(diagonal[i])) return false;
  return true;
}

// Damping of scalar i: `absolute` + `relative` H_ii
wide damping_of(uint i, wide absolute, wide relative) {
  return wide_add(absolute, wide_mul(relative, diagonal[i]));
}

#if METHOD >= NEWTON
wide growth;  // largest quotient of a diagonal entry and its pivot
#endif

// Words of a panel of `table`: its first column; columns, at most PANEL; where its rows are told, those of its
// own triangle first, each as the first column's entry of `pool` << 16 | the row's distance from that column; rows
// below, b the last of them; columns before the panel that its own rows have.
struct Panel {
  uint column, width, rows, num_below, num_before;
};
Panel panel_at(uint number) {
  const uint at = PANELS_AT + 5 * number;
  return Panel(table.at[at], table.at[at + 1], table.at[at + 2], table.at[at + 3], table.at[at + 4]);
}

// What is told of a panel's rows: its own, this invocation's first one below, and b.
struct Rows {
  uint own[PANEL], below, b;
};
Rows rows_of(Panel panel) {
  Rows rows;
  [[unroll]] for (uint a = 0; a < PANEL; ++a) rows.own[a] = table.at[panel.rows + min(a, panel.width - 1)];
  const uint below = panel.rows + panel.width, last = panel.num_below - 1;
  rows.below = table.at[below + min(LANE, last)];
  rows.b = table.at[below + last];
  return rows;
}

// Panels from `first` on, in steps of +-1: their words are read one and two panels ahead, so that nothing waits.
struct Ahead {
  Panel panel, following;
  Rows rows, following_rows;
};
Ahead begin_ahead(uint first, uint second) {
  Ahead ahead;
  ahead.panel = panel_at(first);
  ahead.following = panel_at(second);
  ahead.rows = rows_of(ahead.panel);
  return ahead;
}
Panel read_ahead(inout Ahead ahead, uint second) {
  ahead.following_rows = rows_of(ahead.following);
  return panel_at(second);
}
void go_on(inout Ahead ahead, Panel second) {
  ahead.panel = ahead.following;
  ahead.rows = ahead.following_rows;
  ahead.following = second;
}

// The triangle of a panel by rows, its entry (a, b) at TRIANGLE(a) + b.
#define TRIANGLE(a) (((a) * ((a) + 1)) / 2)
void read_triangle(Panel panel, Rows rows, out wide triangle[TRIANGLE(PANEL)]) {
  [[unroll]] for (uint a = 0; a < PANEL; ++a) {
    const uint first = rows.own[a] >> 16;
    [[unroll]] for (uint b = 0; b <= a; ++b) triangle[TRIANGLE(a) + b] = a < panel.width ? pool[first + b] : WIDE_ZERO;
  }
}

void write_triangle(Panel panel, Rows rows, wide triangle[TRIANGLE(PANEL)], wide inverse[PANEL]) {
  [[unroll]] for (uint a = 0; a < PANEL; ++a)
    if (a < panel.width) {
      const uint first = rows.own[a] >> 16;
      [[unroll]] for (uint b = 0; b < a; ++b) pool[first + b] = triangle[TRIANGLE(a) + b];
      pool[first + a] = inverse[a];
    }
}

// L Delta below the diagonal, the inverse of Delta beside; false where a pivot is not positive.
bool factorize_triangle(Panel panel, wide absolute, wide relative, inout wide triangle[TRIANGLE(PANEL)],
                        out wide inverse[PANEL]) {
  bool is_definite = true;
  [[unroll]] for (uint a = 0; a < PANEL; ++a) {
    wide factors[PANEL];  // of row a
    [[unroll]] for (uint b = 0; b <= a; ++b) {
      wide sum = triangle[TRIANGLE(a) + b];
      [[unroll]] for (uint k = 0; k < b; ++k) sum = wide_plus_product(sum, factors[k], triangle[TRIANGLE(b) + k]);
      triangle[TRIANGLE(a) + b] = wide_total(sum);
      if (b < a) factors[b] = -wide_mul(triangle[TRIANGLE(a) + b], inverse[b]);
    }
    inverse[a] = WIDE_ZERO;
    if (a < panel.width) {
      const uint j = panel.column + a;
      const wide pivot = triangle[TRIANGLE(a) + a];
      const wide start = wide_add(diagonal[j], damping_of(j, absolute, relative));
      if (!(wide_is_finite(pivot) && wide_lt(wide_mul(WIDE_EPSILON, wide_abs(start)), pivot))) is_definite = false;
      inverse[a] = wide_div(number(1.0), pivot);
#if METHOD >= NEWTON
      growth = largest_of(growth, wide_mul(start, inverse[a]));
#endif
    }
  }
  return is_definite;
}

// Row `first` of `pool` in the panel's columns up to date: L Delta.
void solve_row(Panel panel, uint first, wide triangle[TRIANGLE(PANEL)], wide inverse[PANEL]) {
  wide factors[PANEL];
  [[unroll]] for (uint k = 0; k < PANEL; ++k)
    if (k < panel.width) {
      wide sum = pool[first + k];
      [[unroll]] for (uint m = 0; m < k; ++m) sum = wide_plus_product(sum, factors[m], triangle[TRIANGLE(k) + m]);
      sum = wide_total(sum);
      factors[k] = -wide_mul(sum, inverse[k]);
      if (k > 0) pool[first + k] = sum;
    }
}

// Subtracts the panel's part from the columns behind it.
void update_rows(Panel panel, wide inverse[PANEL]) {
  const uint step = WORKGROUP_SIZE / COLUMNS;
  for (uint r = LANE / COLUMNS; r < panel.num_below; r += step) {
    const uint first = rows_below[r] >> 16, num_columns = min(r + 1, panel.num_below - 1);  // b is no column
    wide factors[PANEL];
    [[unroll]] for (uint k = 0; k < PANEL; ++k)
      factors[k] = k < panel.width ? -wide_mul(pool[first + k], inverse[k]) : WIDE_ZERO;
    for (uint c = LANE % COLUMNS; c < num_columns; c += 2 * COLUMNS) {  // two at a time wait for memory
      const bool is_last = c + COLUMNS >= num_columns;
      const uint other = rows_below[c], entry = first + (other & 0xffffu);
      const uint another = rows_below[is_last ? c : c + COLUMNS], other_entry = first + (another & 0xffffu);
      wide sum = pool[entry], other_sum = pool[other_entry];
      [[unroll]] for (uint k = 0; k < PANEL; ++k)
        if (k < panel.width) {
          sum = wide_plus_product(sum, factors[k], pool[(other >> 16) + k]);
          other_sum = wide_plus_product(other_sum, factors[k], pool[(another >> 16) + k]);
        }
      pool[entry] = wide_total(sum);
      if (!is_last) pool[other_entry] = wide_total(other_sum);
    }
  }
}

// H + D into `pool`, and b.
void read_system(wide absolute, wide relative) {
  for (uint entry = LANE; entry < NUM_STORED; entry += WORKGROUP_SIZE) pool[entry] = WIDE_ZERO;
  barrier();
  const uint dim = DIM;
  for (uint entry = LANE; entry < NUM_ENTRIES; entry += WORKGROUP_SIZE) {
    wide value = system.at[origin + entry];
    if (entry < dim) value = wide_add(value, damping_of(entry, absolute, relative));
    pool[table.at[STORED_AT + entry]] = value;
  }
  barrier();
}

// dx of L' dx = Delta^-1 (what b has become), from the last panel to the first.
void solve_backward() {
  const uint last = NUM_PANELS - 1;
  Ahead ahead = begin_ahead(last, max(last, 1) - 1);
  for (uint number = last + 1; number-- > 0;) {
    const Panel panel = ahead.panel, second = read_ahead(ahead, max(number, 2) - 2);
    const uint first_of_b = ahead.rows.b >> 16;
    wide triangle[TRIANGLE(PANEL)], x[PANEL];
    read_triangle(panel, ahead.rows, triangle);
    [[unroll]] for (uint n = 0; n < PANEL; ++n) {
      const uint a = PANEL - 1 - n;
      wide sum = a < panel.width ? pool[first_of_b + a] : WIDE_ZERO;
      [[unroll]] for (uint k = a + 1; k < PANEL; ++k) sum = wide_plus_product(sum, -x[k], triangle[TRIANGLE(k) + a]);
      x[a] = wide_mul(wide_total(sum), triangle[TRIANGLE(a) + a]);
    }
    for (uint c = 1 + LANE; c <= panel.num_before; c += WORKGROUP_SIZE) {
      wide sum = pool[first_of_b - c];
      [[unroll]] for (uint a = 0; a < PANEL; ++a)
        if (a < panel.width) sum = wide_plus_product(sum, -x[a], pool[(ahead.rows.own[a] >> 16) - c]);
      pool[first_of_b - c] = wide_total(sum);
    }
    if (LANE == 0)
      [[unroll]] for (uint a = 0; a < PANEL; ++a)
        if (a < panel.width) dx[panel.column + a] = x[a];
    go_on(ahead, second);
    barrier();
  }
}

// dx; false where a pivot is not positive.
bool solve(wide absolute, wide relative) {
  barrier();
#if METHOD >= NEWTON
  growth = number(1.0);
#endif
  read_system(absolute, relative);
  const uint last = NUM_PANELS - 1;
  Ahead ahead = begin_ahead(0, min(1, last));
  for (uint number = 0; number <= last; ++number) {
    const Panel panel = ahead.panel, second = read_ahead(ahead, min(number + 2, last));
    wide triangle[TRIANGLE(PANEL)], inverse[PANEL];
    read_triangle(panel, ahead.rows, triangle);
    if (!factorize_triangle(panel, absolute, relative, triangle, inverse)) return false;
    for (uint r = LANE; r < panel.num_below; r += WORKGROUP_SIZE) {
      const uint row = r == LANE ? ahead.rows.below : table.at[panel.rows + panel.width + r];
      rows_below[r] = row;
      solve_row(panel, row >> 16, triangle, inverse);
    }
    barrier();
    if (LANE == 0) write_triangle(panel, ahead.rows, triangle, inverse);
    update_rows(panel, inverse);
    go_on(ahead, second);
    barrier();
  }
  solve_backward();
  return true;
}

void accept() {
  barrier();
  for (uint i = LANE; i < NUM_FREE; i += WORKGROUP_SIZE) place[i] = place[MOST_FREE + i];
  barrier();
}

#if METHOD >= NEWTON
#include "problem_newton.glsl"
#else

// dx' (D dx + b)
wide predicted_gain(wide absolute, wide relative) {
  wide mine = WIDE_ZERO;
  for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE) {
    const wide damped = wide_mul(damping_of(i, absolute, relative), dx[i]);
    mine = wide_add(mine, wide_mul(dx[i], wide_add(damped, gradient[i])));
  }
  return workgroup_sum(mine);
}

// By what share of chi2, which is `now`, a step that is hardly damped promises to lower it; 0 if there is none.
wide promise(wide now) {
  for (uint k = 0; k < NUM_PROMISES; ++k) {
    const wide share = options.at[PROMISE_AT + k];
    if (!solve(WIDE_ZERO, share)) continue;
    const wide gain = predicted_gain(WIDE_ZERO, share);
    if (!(wide_is_finite(gain) && is_positive(gain) && is_positive(now))) return WIDE_ZERO;
    return wide_div(gain, now);
  }
  return WIDE_ZERO;
}

#if METHOD == GAUSS_NEWTON

uint take_step(wide current) {
  ++trials;
  if (!solve(WIDE_ZERO, WIDE_ZERO)) return LINEAR_SOLVER_FAILURE;
  step_size = largest_step();
  if (!wide_is_finite(step_size)) return NON_FINITE;
  move();
  const wide moved = moved_chi2();
  if (!wide_is_finite(moved)) return NON_FINITE;
  accept();
  chi2 = moved;
  is_accepted = true;
  return RULES;
}

bool may_loosen() { return false; }
bool loosen(wide now) { return false; }

#elif METHOD == LEVENBERG

void reject() {
  lambda = wide_mul(lambda, nu);
  nu = wide_mul(nu, number(2.0));
}

// Try the present damping: the sign of rho; `current` becomes that after the step if it is accepted.
int levenberg_trial(inout wide current) {
  if (!solve(lambda, WIDE_ZERO)) {
    reject();
    return -1;
  }
  const wide predicted = predicted_gain(lambda, WIDE_ZERO);
  move();
  const wide moved = moved_chi2();
  const wide rho = wide_div(wide_sub(current, moved), wide_add(predicted, SCALE_OFFSET));
  if (is_positive(rho) && wide_is_finite(moved)) {
    const wide t = wide_sub(wide_mul(number(2.0), rho), number(1.0));
    wide alpha = wide_sub(number(1.0), wide_mul(t, wide_mul(t, t)));
    if (wide_lt(UPPER_SCALE, alpha)) alpha = UPPER_SCALE;
    lambda = wide_mul(lambda, largest_of(LOWER_SCALE, alpha));
    nu = number(2.0);
    accept();
    current = moved;
    return 1;
  }
  reject();
  if (wide_is_finite(rho) && !wide_lt(rho, WIDE_ZERO)) return 0;
  return -1;
}

uint take_step(wide current) {
  if (is_first) {
    lambda = initial_lambda;
    if (!is_positive(lambda)) lambda = wide_mul(TAU, largest_diagonal());
    nu = number(2.0);
  }
  uint tried = 0;
  int sign = -1;
  do {
    sign = levenberg_trial(current);
    ++tried;
    if (sign > 0) {
      step_size = largest_step();
      is_accepted = true;
    }
  } while (sign < 0 && tried < push.max_trials && wide_is_finite(lambda));
  trials += tried;
  chi2 = current;
  return tried >= push.max_trials || sign == 0 || !wide_is_finite(lambda) ? NO_IMPROVEMENT : RULES;
}

// A run goes on with hardly any damping, `initial_lambda`.
bool may_loosen() {
  initial_lambda = wide_mul(LEAST_LAMBDA, largest_diagonal());
  return !wide_le(lambda, initial_lambda);
}

bool loosen(wide now) {
  if (wide_le(promise(now), FUNCTION_TOLERANCE)) return false;
  lambda = initial_lambda;
  nu = number(2.0);
  return true;
}

#elif METHOD == DOGLEG

// x' H x of a vector in shared memory
#define DEFINE_QUADRATIC(name, x)                                                          \
  wide name() {                                                                            \
    wide mine = WIDE_ZERO;                                                                 \
    for (uint entry = LANE; entry < NUM_ENTRIES; entry += WORKGROUP_SIZE) {                \
      const uint at = table.at[PLACES_AT + entry], i = at >> 16, j = at & 0xffffu;         \
      if (i == DIM) continue;                                                              \
      const wide term = wide_mul(system.at[origin + entry], wide_mul(x[i], x[j]));         \
      mine = wide_add(mine, term);                                                         \
      if (i != j) mine = wide_add(mine, term);                                             \
    }                                                                                      \
    return workgroup_sum(mine);                                                            \
  }
DEFINE_QUADRATIC(gradient_curvature, gradient)
DEFINE_QUADRATIC(step_curvature, dx)

// H dx = b, damped if H was ever indefinite; false beyond the largest damping.
bool solve_gauss_newton() {
  for (uint tried = 0; tried < 1000; ++tried) {
    const bool solved = solve(was_positive_definite ? WIDE_ZERO : lambda, WIDE_ZERO);
    was_positive_definite = was_positive_definite && solved;
    if (solved) {
      if (!was_positive_definite)
        lambda = largest_of(MIN_LAMBDA, wide_div(lambda, wide_mul(number(0.5), LAMBDA_FACTOR)));
      return true;
    }
    lambda = wide_mul(lambda, LAMBDA_FACTOR);
    if (wide_lt(MAX_LAMBDA, lambda)) {
      const wide most = largest_diagonal();
      if (!(wide_le(lambda, most) && wide_is_finite(most))) break;
    }
  }
  if (wide_lt(MAX_LAMBDA, lambda)) lambda = MAX_LAMBDA;
  return false;
}

// The point of the dogleg path at radius delta into dx; steepest: what b is multiplied by.
void take_dogleg(wide steepest) {
  wide of_gradient = WIDE_ZERO, of_newton = number(1.0);
  if (!wide_lt(wide_sqrt(newton_squared()), delta)) {
    const wide steepest_squared = wide_mul(wide_mul(steepest, steepest), gradient_squared());
    const wide steepest_norm = wide_sqrt(steepest_squared);
    if (wide_lt(delta, steepest_norm)) {
      of_gradient = wide_mul(steepest, wide_div(delta, steepest_norm));
      of_newton = WIDE_ZERO;
    } else {
      wide c = WIDE_ZERO, leg_squared = WIDE_ZERO;
      for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE) {
        const wide down = wide_mul(steepest, gradient[i]), leg = wide_sub(newton[i], down);
        c = wide_add(c, wide_mul(down, leg));
        leg_squared = wide_add(leg_squared, wide_mul(leg, leg));
      }
      c = workgroup_sum(c);
      leg_squared = workgroup_sum(leg_squared);
      const wide missing = wide_sub(wide_mul(delta, delta), steepest_squared);
      const wide root = wide_sqrt(wide_add(wide_mul(c, c), wide_mul(leg_squared, missing)));
      wide beta;
      if (wide_le(c, WIDE_ZERO)) beta = wide_div(wide_sub(root, c), leg_squared);
      else beta = wide_div(missing, wide_add(c, root));
      of_gradient = wide_mul(steepest, wide_sub(number(1.0), beta));
      of_newton = beta;
    }
  }
  barrier();
  for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE)
    dx[i] = wide_add(wide_mul(of_gradient, gradient[i]), wide_mul(of_newton, newton[i]));
  barrier();
}

// Keep the step if rho > 0, and adapt the trust region.
bool dogleg_trial(inout wide current) {
  const wide curvature = step_curvature();
  wide gain = wide_sub(wide_mul(number(2.0), gradient_step()), curvature);
  if (wide_lt(wide_abs(gain), LEAST_GAIN)) gain = LEAST_GAIN;
  move();
  const wide moved = moved_chi2(), rho = wide_div(wide_sub(current, moved), gain);
  if (wide_lt(number(0.75), rho))
    delta = largest_of(delta, wide_mul(number(3.0), wide_sqrt(step_squared())));
  else if (!wide_le(number(0.25), rho))  // also NaN
    delta = wide_mul(number(0.5), delta);
  if (!is_positive(rho)) return false;
  accept();
  current = moved;
  return true;
}

uint take_step(wide current) {
  chi2 = current;
  const wide curvature = gradient_curvature();
  wide steepest = WIDE_ZERO;
  if (is_positive(curvature)) steepest = wide_div(gradient_squared(), curvature);
  if (!solve_gauss_newton()) {
    ++trials;
    return LINEAR_SOLVER_FAILURE;
  }
  for (uint i = LANE; i < DIM; i += WORKGROUP_SIZE) newton[i] = dx[i];
  barrier();
  uint tried = 0;
  while (!is_accepted && tried < push.max_trials) {
    ++tried;
    take_dogleg(steepest);
    is_accepted = dogleg_trial(current);
  }
  trials += tried;
  chi2 = current;
  if (tried >= push.max_trials || !is_accepted) return NO_IMPROVEMENT;
  step_size = largest_step();
  return RULES;
}

bool may_loosen() { return !wide_le(INITIAL_DELTA, delta); }

bool loosen(wide now) {
  if (wide_le(promise(now), FUNCTION_TOLERANCE)) return false;
  delta = INITIAL_DELTA;
  return true;
}

#endif

// -------------------------------------------------------------------- runs

bool has_converged() {
  const wide fallen = wide_abs(wide_sub(before, chi2));
  if (is_accepted && is_positive(FUNCTION_TOLERANCE) &&
      wide_le(fallen, wide_mul(FUNCTION_TOLERANCE, wide_abs(before))))
    return true;
  if (is_accepted && is_positive(STEP_TOLERANCE) && wide_le(step_size, STEP_TOLERANCE)) return true;
  return is_positive(GRADIENT_TOLERANCE) && wide_le(largest_gradient(), GRADIENT_TOLERANCE);
}

// Whether a run that has ended like this may go on, since damping may be what made the last decrease small.
bool may_go_on(uint outcome) {
  if (outcome != CONVERGED && outcome != NO_IMPROVEMENT) return false;
  if (!is_positive(FUNCTION_TOLERANCE) || iterations >= push.max_iterations) return false;
  const wide enough = wide_mul(wide_sub(number(1.0), FUNCTION_TOLERANCE), at_last_end);
  return !(wide_is_finite(at_last_end) && !wide_lt(chi2, enough)) && may_loosen();
}

void end(uint outcome) {
  ending = outcome;
  if ((outcome == NO_IMPROVEMENT || outcome == LINEAR_SOLVER_FAILURE) && !has_finite_system()) ending = NON_FINITE;
}

// One iteration, or the look at a run that has settled before its first one.
void iterate() {
  const wide current = linearize();
  if (settled != RUNNING) {
    if (!loosen(current)) {
      end(settled);
      return;
    }
    at_last_end = chi2;
    is_first = true;
    settled = RUNNING;
  }
  if (is_first) {
    before = chi2 = current;
    if (!is_begun) initial_chi2 = current;
    is_begun = true;
    if (!wide_is_finite(current)) ending = NON_FINITE;
    else if (push.max_iterations == 0) ending = RULES;
    if (ending != RUNNING) return;
  }
  is_accepted = false;
  uint outcome = take_step(current);
  is_first = false;
  ++iterations;
  if (outcome == RULES && has_converged()) outcome = CONVERGED;
  if (outcome == RULES) {
    before = chi2;
    if (iterations >= push.max_iterations) ending = RULES;
  } else if (may_go_on(outcome)) {
    settled = outcome;
  } else {
    end(outcome);
  }
}

void run_problem() {
  const uint at = 8 * problem, word = 4 * problem;
  initial_chi2 = state.at[at];
  chi2 = state.at[at + 1];
  lambda = state.at[at + 2];
  nu = state.at[at + 3];
  initial_lambda = state.at[at + 4];
  delta = state.at[at + 5];
  at_last_end = state.at[at + 6];
  before = state.at[at + 7];
  iterations = counts.at[word];
  trials = counts.at[word + 1];
  ending = counts.at[word + 2];
  const uint flags = counts.at[word + 3];
  is_begun = (flags & 1) != 0;
  is_first = (flags & 2) != 0;
  was_positive_definite = (flags & 4) != 0;
  settled = flags >> 3;
  barrier();
  for (uint k = 0; k < push.num_steps && ending == RUNNING; ++k) iterate();
  barrier();
  if (LANE != 0) return;
  state.at[at] = initial_chi2;
  state.at[at + 1] = chi2;
  state.at[at + 2] = lambda;
  state.at[at + 3] = nu;
  state.at[at + 4] = initial_lambda;
  state.at[at + 5] = delta;
  state.at[at + 6] = at_last_end;
  state.at[at + 7] = before;
  counts.at[word] = iterations;
  counts.at[word + 1] = trials;
  counts.at[word + 2] = ending;
  counts.at[word + 3] = uint(is_begun) | (uint(is_first) << 1) | (uint(was_positive_definite) << 2) |
                        (settled << 3);
}

#endif
#endif
