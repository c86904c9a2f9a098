// The factorisation of a sparse symmetric matrix by fronts (multifrontal), shared by the chol_* kernels.
//
// A front has n pivots and m rows below, f = n + m. Its factor is a column-major f x n matrix, its Schur complement
// ("update") a column-major m x m matrix of which the lower triangle counts. Factors stay; updates live in one of
// two arenas, by parity of the level in the tree, until the parent has taken them. Factors and updates are reals that
// may take 4 GiB and more.
//   A = L S L',  S = diag(+-1): S = I for LL'; with SIGNED the square root of |D| of LDL' is inside of L.
// A pivot must exceed its threshold (machine epsilon times its diagonal entry of the matrix); else it is replaced by 1 and the
// status notes the first one in the order of elimination.
#ifndef GRAPHOPT_CHOL_GLSL
#define GRAPHOPT_CHOL_GLSL

layout(constant_id = 14) const uint SIGNED = 0;
// 1: matrix, damping, right-hand sides and solutions are float32, also where the factorisation is in float64.
layout(constant_id = 13) const uint NARROW = 0;

const uint BLOCK = 32;       // columns of a panel
const uint FRONT_SIZE = 12;  // words of a front's description
struct Front {
  uint first_pivot, n, m, factor, update, rows, children_begin, children_end;
  uint f;
};
#define LOAD_FRONT(index)                                                                                          \
  Front(fronts.at[FRONT_SIZE * (index)], fronts.at[FRONT_SIZE * (index) + 1], fronts.at[FRONT_SIZE * (index) + 2], \
        fronts.at[FRONT_SIZE * (index) + 3], fronts.at[FRONT_SIZE * (index) + 4],                                  \
        fronts.at[FRONT_SIZE * (index) + 5], fronts.at[FRONT_SIZE * (index) + 6],                                  \
        fronts.at[FRONT_SIZE * (index) + 7],                                                                       \
        fronts.at[FRONT_SIZE * (index) + 1] + fronts.at[FRONT_SIZE * (index) + 2])
const uint FRONT_TILES = 8;  // word: first entry of `bounds` of this front as a child

// status[0]: 0, or num_pivots - the first bad pivot. An integer maximum is the same in any order.
#define NOTE_BAD_PIVOT(pivot) atomicMax(status.at[0], push.num_pivots - (pivot))
// status[1]: negative pivots (SIGNED)
#define NOTE_NEGATIVE() atomicAdd(status.at[1], 1)

#if defined(GRAPHOPT_DOUBLE)
const real PIVOT_TOLERANCE = 2.220446049250313e-16lf;
#else
const real PIVOT_TOLERANCE = 1.1920929e-7;
#endif

bool good_pivot(real pivot, real threshold) {
  return SIGNED != 0 ? (abs(pivot) > threshold && !isinf(pivot)) : (pivot > threshold && !isinf(pivot));
}

#endif
