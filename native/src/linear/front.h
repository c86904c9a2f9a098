// Partial Cholesky factorisation of one dense front, the kernel under all direct solvers.
//
//   [ A11      ]   [ L11   ] [ I    ] [ L11' L21' ]      A11 = L11 L11'     n x n, triangular strips
//   [ A21  A22 ] = [ L21 I ] [    S ] [       I   ]      L21 = A21 L11^-T   m x n, rectangular strips
//                                                        S   = A22 - L21 L21'
//
// With signs it is L D L' with D = diag(+-1), for symmetric matrices that are not definite: the square root
// of |pivot| is inside of L.
//
// `factor` overwrites A11, A21 by L11, L21 and writes only -L21 L21' to `update` (triangular strips); A22 is
// added by the caller. The diagonal of L11 is stored inverted. Loops run over blocks of columns; within a
// block the columns are left-looking in groups of kStrip, with the triangular solve in registers; the rest is
// updated block by block.
//
// Several threads may call `factor` on the same front with (thread, num_threads, barrier): the tiles have
// fixed owners, every element is computed by one thread in an order that does not depend on the number of
// threads.
#pragma once

#include <cstdint>
#include <limits>

#include "linear/strips.h"
#include "parallel/thread_pool.h"

namespace graphopt {

struct Front {
  int num_pivots;    // n
  int num_below;     // m
  double* diagonal;  // L11, triangle_size(num_strips(n))
  double* below;     // L21, rectangle_size(m, n)
  double* update;    // S, triangle_size(num_strips(m)); unused if m == 0
  double* signs;     // (n) signs of the pivots, or null: LL'
};

// The threads that work on one front: this one is `thread` of `num_threads`.
struct Team {
  int thread = 0;
  int num_threads = 1;
  SpinBarrier* barrier = nullptr;
  int worker = 0;  // this thread's number in the pool
  void wait() const {
    if (num_threads > 1) barrier->wait();
  }
};

// min_pivot (n): a pivot, or its magnitude if there are signs, must be finite and larger. Returns the first
// failing pivot, or -1, or kStopped. The threads of a team share `failed_pivot`, which the caller sets to -1.
constexpr int kStopped = std::numeric_limits<int>::max();
int factor_front(const Front& front, const double* min_pivot, const Team& team, int* failed_pivot);

// y := L11^-1 y (n);  then  accumulate (m, padded to strips) := L21 y.
void forward_front(const Front& front, double* y, double* accumulate);
// The same of several y, to the same bits.
void forward_front(const Front& front, double* const* y, double* const* accumulate, int count);

// accumulate (m, padded to strips) := L21 y;  then  y := L11 y (n).
void multiply_front(const Front& front, double* y, double* accumulate);

// y -= L21' z; z (m, padded to strips, padding zero).
void subtract_below(const Front& front, double* y, const double* z);

// y := L11^-T (y - L21' z); z (m, padded to strips, padding zero).
void backward_front(const Front& front, double* y, const double* z);

}  // namespace graphopt
