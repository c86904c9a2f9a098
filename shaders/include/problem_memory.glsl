// What a workgroup that optimizes a whole small problem keeps in shared memory, and the sums over its edges.
//
//   H (lower triangle within its envelope, by rows), then b as row DIM
//
// `system` has them per problem; an entry is written and read by one invocation only, `pool` gets a copy to
// factorize. While H is formed, `pool` has what ROWS edges contribute: gather adds it up per entry, in order.
// Generated functions come after this file, problem_loop.glsl after them (codegen/gpu/problem_kernel.py).
#ifndef GRAPHOPT_PROBLEM_MEMORY_GLSL
#define GRAPHOPT_PROBLEM_MEMORY_GLSL

#if !defined(GRAPHOPT_TWO_FLOAT)
double wide_add(double a, double b) { return a + b; }
double wide_sub(double a, double b) { return a - b; }
double wide_mul(double a, double b) { return a * b; }
double wide_div(double a, double b) { return a / b; }
double wide_sqrt(double a) { return sqrt(a); }
double wide_abs(double a) { return abs(a); }
bool wide_lt(double a, double b) { return a < b; }
bool wide_le(double a, double b) { return a <= b; }
double wide_plus_product(double s, double a, double b) { return s + a * b; }
double wide_total(double s) { return s; }
bool wide_is_finite(double a) { return abs(a) < DOUBLE_INFINITY; }
#define WIDE_EPSILON 2.220446049250313e-16lf
#else
bool wide_is_finite(vec2 a) { return float_is_finite(a.x); }
#define WIDE_EPSILON vec2(1.4210855e-14, 0.0)  // 2^-46
#endif

layout(constant_id = 1) const uint MOST_DIM = 8;    // scalars of dx, at most
layout(constant_id = 2) const uint POOL = 64;       // numbers of the factor, or of contributions
layout(constant_id = 3) const uint MOST_FREE = 8;   // numbers of the estimates that steps change, at most
layout(constant_id = 4) const uint MASKED = 0;      // 1: problems lack edges
layout(constant_id = 5) const uint UNOBSERVED = 0;  // 1: scalars that no edge sees get an equation

shared wide pool[POOL];
shared wide place[2 * MOST_FREE];  // estimates, then those after a step
shared wide dx[MOST_DIM], gradient[MOST_DIM], diagonal[MOST_DIM], newton[MOST_DIM];
shared uint row_first[MOST_DIM + 1], row_base[MOST_DIM + 1], row_last[MOST_DIM];
shared wide summed[WORKGROUP_SIZE];

// Words of `table`, what the problems have in common
#define DIM table.at[0]
#define NUM_ENTRIES table.at[1]
#define NUM_FREE table.at[2]
#define ROWS_AT table.at[3]
#define PLACES_AT table.at[4]
#define CHUNKS_AT table.at[5]
#define TERMS_AT table.at[6]
uint problem, origin;  // number of the problem; its first entry of `system`

wide workgroup_sum(wide mine) {  // a binary tree; the result is in every invocation
  barrier();
  summed[LANE] = mine;
  barrier();
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    if (LANE < s) summed[LANE] = wide_add(summed[LANE], summed[LANE + s]);
    barrier();
  }
  return summed[0];
}

// Adds up the contributions in `pool`; the first chunk of all begins the sums.
void gather(uint chunk) {
  barrier();
  const uint first = CHUNKS_AT + chunk * (NUM_ENTRIES + 1);
  for (uint entry = LANE; entry < NUM_ENTRIES; entry += WORKGROUP_SIZE) {
    const uint end = table.at[first + entry + 1];
    uint term = table.at[first + entry];
    if (term == end && chunk > 0) continue;
    wide total = WIDE_ZERO;
    if (chunk > 0) total = system.at[origin + entry];
    for (; term < end; ++term) total = wide_add(total, pool[table.at[TERMS_AT + term]]);
    system.at[origin + entry] = total;
  }
  barrier();
}

// b and H's diagonal into shared memory, once all edges are in.
void finish_system() {
  for (uint entry = LANE; entry < NUM_ENTRIES; entry += WORKGROUP_SIZE) {
    const uint at = table.at[PLACES_AT + entry], i = at >> 16, j = at & 0xffffu;
    if (i == DIM) gradient[j] = system.at[origin + entry];
    if (i != j) continue;
    if (UNOBSERVED != 0 && unobserved.at[problem * DIM + i] != 0) system.at[origin + entry] = to_wide(ONE);
    diagonal[i] = system.at[origin + entry];
  }
  barrier();
}

#endif
