// Solves with a triangle of up to 32 x 32 in shared memory, four unknowns per barrier, by the first 32 invocations: each
// finds the four for itself and brings an unknown up to date.
#ifndef GRAPHOPT_CHOL_TRIANGLE_GLSL
#define GRAPHOPT_CHOL_TRIANGLE_GLSL

const uint TRIANGLE_LINE = BLOCK + 1, FOUR = 4;
shared real triangle[BLOCK * TRIANGLE_LINE], inverse[BLOCK];  // L by columns, 0 past its width; 1 / L_cc
shared real given[BLOCK], solved[BLOCK];                      // `solved` is 0 past the width

const uint LOADS = 4;  // that are on their way together
// Entry (r, c) of the triangle of a front that starts at this column.
#define LOAD_TRIANGLE(f, column, width)                                                                      \
  {                                                                                                          \
    const bool is_pivot = LANE < BLOCK && LANE < width;                                                      \
    const real pivot = is_pivot ? AT(factor, f.factor, (column + LANE) * f.f + column + LANE) : ONE;         \
    for (uint first_of = LANE; first_of < BLOCK * BLOCK; first_of += LOADS * WORKGROUP_SIZE) {               \
      real loaded[LOADS];                                                                                    \
      [[unroll]] for (uint q = 0; q < LOADS; ++q) {                                                          \
        const uint e = first_of + q * WORKGROUP_SIZE, r = e % BLOCK, c = e / BLOCK;                          \
        const bool is_lower = r >= c && r < width && c < BLOCK;                                              \
        loaded[q] = is_lower ? AT(factor, f.factor, (column + c) * f.f + column + r) : ZERO;                 \
      }                                                                                                      \
      [[unroll]] for (uint q = 0; q < LOADS; ++q) {                                                          \
        const uint e = first_of + q * WORKGROUP_SIZE;                                                        \
        if (e < BLOCK * BLOCK) triangle[e / BLOCK * TRIANGLE_LINE + e % BLOCK] = loaded[q];                  \
      }                                                                                                      \
    }                                                                                                        \
    if (LANE < BLOCK) inverse[LANE] = is_pivot ? ONE / pivot : ZERO;                                         \
  }

void four_down(uint s, inout real x[FOUR]) {
  [[unroll]] for (uint i = 0; i < FOUR; ++i) {
    const real one = x[i] * inverse[s + i];
    x[i] = one;
    [[unroll]] for (uint j = i + 1; j < FOUR; ++j) x[j] -= triangle[(s + i) * TRIANGLE_LINE + s + j] * one;
  }
}

void four_up(uint s, inout real x[FOUR]) {
  [[unroll]] for (uint back = FOUR; back > 0; --back) {
    const uint i = back - 1;
    const real one = x[i] * inverse[s + i];
    x[i] = one;
    [[unroll]] for (uint j = 0; j < i; ++j) x[j] -= triangle[(s + j) * TRIANGLE_LINE + s + i] * one;
  }
}

// solved = L^-1 mine, of the lanes below width; others pass 0. Ends with a barrier.
void solve_lower(real mine, uint width) {
  if (LANE < FOUR) given[LANE] = mine;
  if (LANE < BLOCK) solved[LANE] = ZERO;
  for (uint s = 0; s < width; s += FOUR) {
    barrier();
    if (LANE < BLOCK) {
      real x[FOUR];
      [[unroll]] for (uint i = 0; i < FOUR; ++i) x[i] = given[s + i];
      four_down(s, x);
      [[unroll]] for (uint i = 0; i < FOUR; ++i) {
        if (LANE == s + i) solved[LANE] = x[i];
        mine -= triangle[(s + i) * TRIANGLE_LINE + LANE] * x[i];
      }
      if (LANE >= s + FOUR && LANE < s + 2 * FOUR) given[LANE] = mine;
    }
  }
  barrier();
}

// solved = L^-T mine, likewise.
void solve_upper(real mine, uint width) {
  const uint groups = (width + FOUR - 1) / FOUR;
  if (LANE / FOUR + 1 == groups) given[LANE] = mine;
  if (LANE < BLOCK) solved[LANE] = ZERO;
  for (uint group = groups; group > 0; --group) {
    const uint s = FOUR * (group - 1);
    barrier();
    if (LANE < BLOCK) {
      real x[FOUR];
      [[unroll]] for (uint i = 0; i < FOUR; ++i) x[i] = given[s + i];
      four_up(s, x);
      [[unroll]] for (uint i = 0; i < FOUR; ++i) {
        if (LANE == s + i) solved[LANE] = x[i];
        mine -= triangle[LANE * TRIANGLE_LINE + s + i] * x[i];
      }
      if (LANE < s && LANE + FOUR >= s) given[LANE] = mine;
    }
  }
  barrier();
}

// entries . solved, in four sums.
real times_solved(real entries[BLOCK]) {
  real sum[FOUR];
  [[unroll]] for (uint i = 0; i < FOUR; ++i) sum[i] = entries[i] * solved[i];
  [[unroll]] for (uint c = FOUR; c < BLOCK; ++c) sum[c % FOUR] += entries[c] * solved[c];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Columns before a block times `solved`: four invocations share a column, so that what they read is side by side. Each has 8
// of the 32 rows of four columns; two of these columns pass through the triangle's memory at a time.
const uint SHARES = 4, EACH = BLOCK / SHARES, TEAM = WORKGROUP_SIZE / SHARES, HALF = 2 * TEAM, SHARE_LINE = HALF + 8;

// entries of columns first + LANE / SHARES + q TEAM, which are before `last`; of rows column + LANE % SHARES + i SHARES
#define FETCH_BEFORE(f, column, width, first, last)                                                      \
  [[unroll]] for (uint e = 0; e < BLOCK; ++e) {                                                          \
    const uint c = first + LANE / SHARES + e / EACH * TEAM, r = LANE % SHARES + e % EACH * SHARES;       \
    entries[e] = r < width && c < last ? AT(factor, f.factor, c * f.f + column + r) : ZERO;              \
  }

// Ends without a barrier, though others read what is put there.
void put_shares(real entries[BLOCK], uint side_of) {
  [[unroll]] for (uint q = 0; q < 2; ++q) {
    real sum = ZERO;
    [[unroll]] for (uint i = 0; i < EACH; ++i) {
      const uint e = q * EACH + i;
      sum += (side_of == 0 ? entries[e] : entries[BLOCK / 2 + e]) * solved[LANE % SHARES + i * SHARES];
    }
    triangle[LANE % SHARES * SHARE_LINE + q * TEAM + LANE / SHARES] = sum;
  }
}

real sum_of_shares() {
  return (triangle[LANE] + triangle[SHARE_LINE + LANE]) + (triangle[2 * SHARE_LINE + LANE] + triangle[3 * SHARE_LINE + LANE]);
}

#endif
