// What a workgroup that optimizes a whole small problem keeps in shared memory, and the sums over its edges.
//
//   system   per problem, entries of H's lower triangle that edges add to: the diagonal, b, the others; an entry
//            is written and read by one invocation only
//   pool     a copy to factorize: the lower triangle within its envelope, by rows, then b as row DIM. While H is
//            formed, what ROWS edges contribute: gather adds it up per entry, in order
//
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
shared uint rows_below[MOST_DIM + 1];
shared wide summed[WORKGROUP_SIZE];

// Words of `table`, what the problems have in common
#define DIM table.at[0]
#define NUM_ENTRIES table.at[1]
#define NUM_FREE table.at[2]
#define NUM_STORED table.at[3]
#define PLACES_AT table.at[4]
#define STORED_AT table.at[5]
#define CHUNKS_AT table.at[6]
#define TERMS_AT table.at[7]
#define PANELS_AT table.at[8]
#define NUM_PANELS table.at[9]
uint problem, origin;  // number of the problem; its first entry of `system`

bool is_nan(wide x) { return !(wide_le(x, x)); }
wide largest_of(wide a, wide b) {  // NaN if one is
  if (is_nan(a) || wide_lt(b, a)) return a;
  return b;
}

// What all invocations have, put together by a binary tree; the result is in each of them.
#define DEFINE_WORKGROUP(name, together)                                            \
  wide name(wide mine) {                                                            \
    barrier();                                                                      \
    summed[LANE] = mine;                                                            \
    barrier();                                                                      \
    for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {                             \
      if (LANE < s) summed[LANE] = together(summed[LANE], summed[LANE + s]);        \
      barrier();                                                                    \
    }                                                                               \
    return summed[0];                                                               \
  }
DEFINE_WORKGROUP(workgroup_sum, wide_add)
DEFINE_WORKGROUP(workgroup_largest, largest_of)

// Adds up the contributions in `pool`; the first chunk of all begins the sums. An entry's words are its number of
// terms and where these are told; a single one stands there itself. Four entries at a time wait for memory.
const uint AT_ONCE = 4;
void gather(uint chunk) {
  barrier();
  const uint words = CHUNKS_AT + 2 * chunk * NUM_ENTRIES;
  for (uint first = LANE; first < NUM_ENTRIES; first += AT_ONCE * WORKGROUP_SIZE) {
    uint count[AT_ONCE], term[AT_ONCE];
    [[unroll]] for (uint k = 0; k < AT_ONCE; ++k) {
      const uint word = words + 2 * min(first + k * WORKGROUP_SIZE, NUM_ENTRIES - 1);
      count[k] = table.at[word];
      term[k] = table.at[word + 1];
    }
    [[unroll]] for (uint k = 0; k < AT_ONCE; ++k) {
      const uint entry = first + k * WORKGROUP_SIZE;
      if (entry >= NUM_ENTRIES || (count[k] == 0 && chunk > 0)) continue;
      wide total = WIDE_ZERO;
      if (chunk > 0) total = system.at[origin + entry];
      if (count[k] == 1) total = wide_add(total, pool[term[k]]);
      else
        for (uint t = 0; t < count[k]; ++t) total = wide_add(total, pool[table.at[TERMS_AT + term[k] + t]]);
      system.at[origin + entry] = total;
    }
  }
  barrier();
}

// b and H's diagonal into shared memory, once all edges are in.
void finish_system() {
  const uint dim = DIM;
  for (uint entry = LANE; entry < 2 * dim; entry += WORKGROUP_SIZE) {
    if (entry >= dim) {
      gradient[entry - dim] = system.at[origin + entry];
      continue;
    }
    if (UNOBSERVED != 0 && unobserved.at[problem * dim + entry] != 0) system.at[origin + entry] = to_wide(ONE);
    diagonal[entry] = system.at[origin + entry];
  }
  barrier();
}

#endif
