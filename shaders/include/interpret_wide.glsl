// Arithmetic of the interpreter: operations on `wide` as functions w_*, whichever type it is.
#ifndef GRAPHOPT_INTERPRET_WIDE_GLSL
#define GRAPHOPT_INTERPRET_WIDE_GLSL

#include "generated.glsl"
#include "generated_math.glsl"

#if defined(GRAPHOPT_TWO_FLOAT)
#define w_number(x) wide_pair(float(x), 0.0)
#define w_add wide_add
#define w_sub wide_sub
#define w_mul wide_mul
#define w_recip wide_recip
#define w_sqrt wide_sqrt
#define w_floor wide_floor
#define w_abs wide_abs
#define w_less wide_lt
#define w_less_equal wide_le
#define w_equal wide_eq
wide w_fma(wide x, wide y, wide z) { return wide_add(wide_mul(x, y), z); }
#else
#define w_number(x) wide(x)
#define w_add(x, y) ((x) + (y))
#define w_sub(x, y) ((x) - (y))
#define w_mul(x, y) ((x) * (y))
#define w_recip(x) (1.0lf / (x))
#define w_sqrt(x) sqrt(x)
#define w_floor(x) floor(x)
#define w_abs(x) abs(x)
#define w_fma(x, y, z) fma(x, y, z)
#define w_less(x, y) ((x) < (y))
#define w_less_equal(x, y) ((x) <= (y))
#define w_equal(x, y) ((x) == (y))
#endif
#define w_neg(x) (-(x))

// Truth values are 1 and 0; everything but 0 is true, NaN too.
wide w_truth(bool x) { return w_number(x ? 1.0 : 0.0); }
bool w_is_true(wide x) { return !w_equal(x, w_number(0.0)); }
wide w_lt(wide x, wide y) { return w_truth(w_less(x, y)); }
wide w_le(wide x, wide y) { return w_truth(w_less_equal(x, y)); }
wide w_eq(wide x, wide y) { return w_truth(w_equal(x, y)); }
wide w_and(wide x, wide y) { return w_truth(w_is_true(x) && w_is_true(y)); }
wide w_or(wide x, wide y) { return w_truth(w_is_true(x) || w_is_true(y)); }
wide w_not(wide x) { return w_truth(!w_is_true(x)); }
wide w_select(wide condition, wide x, wide y) { return w_is_true(condition) ? x : y; }

#endif
