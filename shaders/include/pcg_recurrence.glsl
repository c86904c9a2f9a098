// The end of a product A u inside the conjugate gradients, row by row: d = u + beta d, q = A u + beta q = A d. In the
// first iteration beta is 0, and what is in d and q means nothing.
#ifndef GRAPHOPT_PCG_RECURRENCE_GLSL
#define GRAPHOPT_PCG_RECURRENCE_GLSL

real pcg_follow(real now, real beta, real before) { return beta != ZERO ? now + beta * before : now; }

// Of row i of w = A x: q = w and the part of x' w in `dot`; where FOLLOWS d = x + beta d, q = w + beta q and that of d' q.
#define PCG_END_ROW(i, xi, w, q_now, q)                                                    \
  if (FOLLOWS != 0) {                                                                      \
    const real di = pcg_follow(xi, beta, d.at[i]), qi = pcg_follow(w, beta, q.at[i]);      \
    d.at[i] = di;                                                                          \
    q.at[i] = qi;                                                                          \
    dot = add_product(dot, di, qi);                                                        \
  } else {                                                                                 \
    q_now.at[i] = w;                                                                       \
    dot = add_product(dot, xi, w);                                                         \
  }

#endif
