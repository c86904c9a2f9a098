// The end of a product A u inside the conjugate gradients, row by row: d = u + beta d, q = A u + beta q = A d. In the
// first iteration beta is 0, and what is in d and q means nothing.
#ifndef GRAPHOPT_PCG_RECURRENCE_GLSL
#define GRAPHOPT_PCG_RECURRENCE_GLSL

real pcg_follow(real now, real beta, real before) { return beta != ZERO ? now + beta * before : now; }

#endif
