// Newton's steps to the optimum of a small problem, and what an optimum changes by: the second half of
// problem_loop.glsl, which says what is generated. linearize() makes the exact Hessian K of chi2 / 2 here, and b.
//
//   NEWTON     graphopt/derivatives/refine.py of one problem
//   ADJOINT    K lambda = v, then derivatives of -lambda' g by what the edges have: adjoint(). Generated, too:
//              read_estimates(), which makes v in `newton` of cotangents of the estimates
#ifndef GRAPHOPT_PROBLEM_NEWTON_GLSL
#define GRAPHOPT_PROBLEM_NEWTON_GLSL

// Entries of `options`, all of derivatives/refine.py and equations.py
#define DAMPING options.at[0]    // share of K's diagonal that is added to it
#define NEAR options.at[1]       // share of chi2 that a step may promise to be taken
#define REACHED options.at[2]    // share that the last one promises at most
#define MOST_CHI2 options.at[3]  // after a step, relative to before
#define TINY options.at[4]       // step, in units of the estimates, that leaves nothing
#define MOST_GROWTH options.at[5]
#define INFINITE options.at[6]

// Entries of `state`
const uint CHI2_AT = 1, LEFT_AT = 4, GROWTH_AT = 5;

#if METHOD == NEWTON

// Share of chi2, which is `now`, that dx promises.
wide share_left(wide now) {
  wide size = number(1.0);
  for (uint i = LANE; i < NUM_FREE; i += WORKGROUP_SIZE) size = largest_of(size, wide_abs(place[i]));
  size = workgroup_largest(size);
  if (wide_le(largest_step(), wide_mul(TINY, size))) return WIDE_ZERO;
  if (!is_positive(now)) return INFINITE;
  return wide_div(gradient_step(), now);
}

void run_problem() {
  const uint at = 8 * problem;
  wide left = INFINITE, first_growth = INFINITE, now = state.at[at + CHI2_AT];
  for (uint k = 0; k < push.num_steps; ++k) {
    const wide current = linearize();
    if (!solve(WIDE_ZERO, DAMPING)) {
      left = first_growth = INFINITE;
      break;
    }
    if (k == 0) first_growth = growth;
    if (!wide_lt(first_growth, MOST_GROWTH)) break;
    left = share_left(current);
    if (!wide_le(left, NEAR)) break;
    move();
    const wide moved = moved_chi2();
    if (!wide_le(moved, wide_mul(MOST_CHI2, current))) break;
    accept();
    now = moved;
    if (wide_le(left, REACHED)) break;
  }
  barrier();
  if (LANE != 0) return;
  state.at[at + CHI2_AT] = now;
  state.at[at + LEFT_AT] = left;
  state.at[at + GROWTH_AT] = first_growth;
}

#else

void run_problem() {
  barrier();
  linearize();
  const uint dim = DIM;
  for (uint entry = LANE; entry < 2 * dim; entry += WORKGROUP_SIZE)  // as finish_system
    if (entry >= dim) system.at[origin + entry] = newton[entry - dim];
  const bool is_solved = solve(WIDE_ZERO, DAMPING);
  if (LANE == 0) state.at[8 * problem + GROWTH_AT] = is_solved ? growth : INFINITE;
  if (is_solved) adjoint();
}

#endif
#endif
