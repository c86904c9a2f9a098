// Arithmetic of the interpreter, in `wide`: float64.
#ifndef GRAPHOPT_INTERPRET_WIDE_GLSL
#define GRAPHOPT_INTERPRET_WIDE_GLSL

#define wide double
const float NOT_A_NUMBER = 0.0 / 0.0;
#define w_number(x) double(x)
#define w_float(x) float(x)
#define w_add(x, y) ((x) + (y))
#define w_sub(x, y) ((x) - (y))
#define w_mul(x, y) ((x) * (y))
#define w_neg(x) (-(x))
#define w_fma(x, y, z) fma(x, y, z)
#define w_recip(x) (1.0lf / (x))
#define w_sqrt(x) sqrt(x)
#define w_floor(x) floor(x)
wide w_truth(bool x) { return x ? 1.0lf : 0.0lf; }
wide w_abs(wide x) { return x < 0.0lf ? -x : x + 0.0lf; }
wide w_sign(wide x) { return x > 0.0lf ? 1.0lf : x < 0.0lf ? -1.0lf : x; }
// like np.minimum and np.maximum: NaN where either is
wide w_min(wide x, wide y) { return x <= y || x != x ? x : y; }
wide w_max(wide x, wide y) { return x >= y || x != x ? x : y; }
#define w_lt(x, y) w_truth((x) < (y))
#define w_le(x, y) w_truth((x) <= (y))
#define w_eq(x, y) w_truth((x) == (y))
#define w_and(x, y) w_truth((x) != 0.0lf && (y) != 0.0lf)
#define w_or(x, y) w_truth((x) != 0.0lf || (y) != 0.0lf)
#define w_not(x) w_truth((x) == 0.0lf)
wide w_select(wide x, wide y, wide z) { return x != 0.0lf ? y : z; }
#define w_sin(x) w_number(NOT_A_NUMBER)
#define w_cos(x) w_number(NOT_A_NUMBER)
#define w_tan(x) w_number(NOT_A_NUMBER)
#define w_asin(x) w_number(NOT_A_NUMBER)
#define w_acos(x) w_number(NOT_A_NUMBER)
#define w_atan(x) w_number(NOT_A_NUMBER)
#define w_atan2(x, y) w_number(NOT_A_NUMBER)
#define w_exp(x) w_number(NOT_A_NUMBER)
#define w_log(x) w_number(NOT_A_NUMBER)
#define w_pow(x, y) w_number(NOT_A_NUMBER)

#endif
