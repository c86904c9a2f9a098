// Elementary functions for generated kernels. GLSL has none for float64, and its float32 ones may be off by
// thousands of units in the last place; these are within 2 to 4 (sine and cosine of angles beyond 2^20 in float64,
// 2^13 in float32: of 1; powers of float32 lose |y log x| units more).
//
// Polynomials and reductions of float64: fdlibm (Sun Microsystems 1993); float32: Cephes (S. Moshier 1989).
// NaN and infinities as in numpy; min and max are NaN where either argument is.
#ifndef GRAPHOPT_GENERATED_MATH_GLSL
#define GRAPHOPT_GENERATED_MATH_GLSL

#include "far_angle.glsl"

// ---------------------------------------------------------------- float32
float math_sign(float x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }
float math_min(float x, float y) { return x <= y || isnan(x) ? x : y; }
float math_max(float x, float y) { return x >= y || isnan(x) ? x : y; }

void math_sincos(float angle, out float sine, out float cosine) {
  float x = angle;
  if (abs(angle) >= 8192.0) x = isinf(angle) ? FLOAT_NAN : near_angle(angle);
  const float n = roundEven(x * 0.636619772);  // quarter turns
  precise float r = x - n * 1.5703125;
  r = r - n * 4.837512969970703125e-4;
  r = r - n * 7.54978995489e-8;
  const float z = r * r;
  const float s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
  const float c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
  const int quarter = int(n - 4.0 * floor(0.25 * n));
  const float sine_part = (quarter & 1) == 0 ? s : c, cosine_part = (quarter & 1) == 0 ? c : s;
  sine = (quarter & 2) == 0 ? sine_part : -sine_part;
  cosine = ((quarter + 1) & 2) == 0 ? cosine_part : -cosine_part;
}
float math_sin(float x) { float s, c; math_sincos(x, s, c); return s; }
float math_cos(float x) { float s, c; math_sincos(x, s, c); return c; }
float math_tan(float x) { float s, c; math_sincos(x, s, c); return s / c; }

float math_atan(float x) {
  const float a = abs(x);
  float base = 0.0, r = a;
  if (a > 2.414213562373095) {
    base = 1.5707963267948966;
    r = -1.0 / a;
  } else if (a > 0.4142135623730950) {
    base = 0.7853981633974483;
    r = (a - 1.0) / (a + 1.0);
  }
  const float z = r * r;
  const float y = base + (r + r * z * (-3.33329491539e-1 + z * (1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2))));
  return x < 0.0 ? -y : isnan(x) || x == 0.0 ? x : y;
}
float math_atan2(float y, float x) {
  const float pi = 3.14159265358979;
  if (isnan(x) || isnan(y)) return x + y;
  const bool left = (floatBitsToUint(x) >> 31) != 0, below = (floatBitsToUint(y) >> 31) != 0;
  const float ax = abs(x), ay = abs(y);
  float angle;
  if (ay == 0.0) angle = 0.0;
  else if (isinf(ax) && isinf(ay)) angle = 0.25 * pi;
  else if (ax >= ay) angle = math_atan(ay / ax);
  else angle = 0.5 * pi - math_atan(ax / ay);
  angle = left ? pi - angle : angle;
  return below ? -angle : angle;
}
float math_asin(float x) { return math_atan2(x, sqrt((1.0 - x) * (1.0 + x))); }
float math_acos(float x) { return 2.0 * math_atan2(sqrt(1.0 - x), sqrt(1.0 + x)); }

float math_exp(float x) {
  if (x > 88.72284) return FLOAT_INFINITY;
  if (x < -103.97) return 0.0;
  const float n = roundEven(x * 1.44269504);
  precise float r = x - n * 0.693359375;
  r = r + n * 2.12194440e-4;
  const float p = 0.5 + r * (1.6666665459e-1 + r * (4.1665795894e-2 + r * (8.3334519073e-3 + r * (1.3981999507e-3 + r * 1.9875691500e-4))));
  const int k = isnan(x) ? 0 : int(n), half_k = k / 2;
  return (1.0 + (r + r * r * p)) * uintBitsToFloat(uint(half_k + 127) << 23) * uintBitsToFloat(uint(k - half_k + 127) << 23);
}
float math_log(float x) {
  if (!(x > 0.0)) return x == 0.0 ? -FLOAT_INFINITY : FLOAT_NAN;
  if (isinf(x)) return x;
  const bool tiny = x < 1.17549435e-38;
  const uint bits = floatBitsToUint(tiny ? x * 16777216.0 : x) - 0x3f3504f3u;  // mantissa from sqrt(1/2) to sqrt(2)
  const int k = int(bits) >> 23;
  const float f = uintBitsToFloat((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0, z = f * f;
  const float e = float(k) - (tiny ? 24.0 : 0.0);
  float p = 7.0376836292e-2;
  p = p * f - 1.1514610310e-1;
  p = p * f + 1.1676998740e-1;
  p = p * f - 1.2420140846e-1;
  p = p * f + 1.4249322787e-1;
  p = p * f - 1.6668057665e-1;
  p = p * f + 2.0000714765e-1;
  p = p * f - 2.4999993993e-1;
  p = p * f + 3.3333331174e-1;
  const float low = f * z * p - 2.12194440e-4 * e - 0.5 * z;
  return (f + low) + 0.693359375 * e;
}
// Sign and exceptions of x^y for both types: whole y of a negative x, zero and infinite bases.
#define GRAPHOPT_POW(type, magnitude, sign_word, INFINITE, NO_NUMBER)                              \
  type math_pow(type x, type y) {                                                                  \
    if (y == type(0) || x == type(1)) return type(1);                                              \
    if (isnan(x) || isnan(y)) return x + y;                                                        \
    const type a = abs(x);                                                                         \
    const bool whole = floor(y) == y, odd = whole && floor(type(0.5) * y) != type(0.5) * y;        \
    type result;                                                                                   \
    if (isinf(y)) {                                                                                \
      if (a == type(1)) return type(1);                                                            \
      return (a > type(1)) == (y > type(0)) ? INFINITE : type(0);                                  \
    } else if (a == type(0) || isinf(a)) {                                                         \
      result = (a == type(0)) == (y > type(0)) ? type(0) : INFINITE;                               \
    } else {                                                                                       \
      if (x < type(0) && !whole) return NO_NUMBER;                                                 \
      result = magnitude(a, y);                                                                    \
    }                                                                                              \
    return odd && (sign_word(x) >> 31) != 0 ? -result : result;                                    \
  }
float pow_of_positive(float a, float y) {
  return math_exp(y * math_log(a));  // the relative error grows with |y log a|
}
GRAPHOPT_POW(float, pow_of_positive, floatBitsToUint, FLOAT_INFINITY, FLOAT_NAN)

// ---------------------------------------------------------------- float64
#if !defined(GRAPHOPT_TWO_FLOAT)
double math_sign(double x) { return x > 0.0lf ? 1.0lf : x < 0.0lf ? -1.0lf : x; }
double math_min(double x, double y) { return x <= y || isnan(x) ? x : y; }
double math_max(double x, double y) { return x >= y || isnan(x) ? x : y; }

double power_of_two(int k) { return packDouble2x32(uvec2(0u, uint(k + 1023) << 20)); }  // -1022 <= k <= 1023

// As that of float32; |x| at least 2^20.
double near_angle(double x) {
  const uvec2 bits = unpackDouble2x32(x);
  int first;
  uint second;
  turns_left((bits.y & 0xfffffu) | 0x100000u, bits.x, int((bits.y >> 20) & 0x7ffu) - 1075, first, second);
  const double turns = double(first) * 2.3283064365386962891e-10lf + double(second) * 5.4210108624275221700e-20lf;
  return (x < 0.0lf ? -6.28318530717958647693e+00lf : 6.28318530717958647693e+00lf) * turns;
}
void math_sincos(double angle, out double sine, out double cosine) {
  double x = angle;
  if (abs(angle) >= 1048576.0lf) x = isinf(angle) ? DOUBLE_NAN : near_angle(angle);
  // x - n pi/2 as r + tail; the first two parts of pi/2 have 33 bits, so their products with n are exact
  const double n = roundEven(x * 6.36619772367581382433e-01lf);
  precise double first = x - n * 1.57079632673412561417e+00lf;
  precise double second = n * 6.07710050630396597660e-11lf;
  precise double near = first - second;
  precise double third = n * 2.02226624879595063154e-21lf - ((first - near) - second);
  precise double r = near - third;
  precise double tail = (near - r) - third;
  const double z = r * r;
  const double p = 8.33333333332248946124e-03lf + z * (-1.98412698298579493134e-04lf + z * (2.75573137070700676789e-06lf
      + z * (-2.50507602534068634195e-08lf + z * 1.58969099521155010221e-10lf)));
  const double s = r - ((z * (0.5lf * tail - r * z * p) - tail) + r * z * 1.66666666666666324348e-01lf);
  const double q = z * (4.16666666666666019037e-02lf + z * (-1.38888888888741095749e-03lf + z * (2.48015872894767294178e-05lf
      + z * (-2.75573143513906633035e-07lf + z * (2.08757232129817482790e-09lf - z * 1.13596475577881948265e-11lf)))));
  precise double half_z = 0.5lf * z;
  precise double head = 1.0lf - half_z;
  precise double lost = (1.0lf - head) - half_z;
  const double c = head + (lost + (z * q - r * tail));
  const int quarter = int(n - 4.0lf * floor(0.25lf * n));
  const double sine_part = (quarter & 1) == 0 ? s : c, cosine_part = (quarter & 1) == 0 ? c : s;
  sine = (quarter & 2) == 0 ? sine_part : -sine_part;
  cosine = ((quarter + 1) & 2) == 0 ? cosine_part : -cosine_part;
}
double math_sin(double x) { double s, c; math_sincos(x, s, c); return s; }
double math_cos(double x) { double s, c; math_sincos(x, s, c); return c; }
double math_tan(double x) { double s, c; math_sincos(x, s, c); return s / c; }

double math_atan(double x) {
  // angles at 1/2, 1, 3/2 and infinity, in two parts
  const double a = abs(x);
  double high = 0.0lf, low = 0.0lf, r = a;
  if (a >= 2.4375lf) {
    high = 1.57079632679489655800e+00lf; low = 6.12323399573676603587e-17lf; r = -1.0lf / a;
  } else if (a >= 1.1875lf) {
    high = 9.82793723247329054082e-01lf; low = 1.39033110312309984516e-17lf; r = (a - 1.5lf) / (1.0lf + 1.5lf * a);
  } else if (a >= 0.6875lf) {
    high = 7.85398163397448278999e-01lf; low = 3.06161699786838301793e-17lf; r = (a - 1.0lf) / (a + 1.0lf);
  } else if (a >= 0.4375lf) {
    high = 4.63647609000806093515e-01lf; low = 2.26987774529616870924e-17lf; r = (2.0lf * a - 1.0lf) / (2.0lf + a);
  }
  const double z = r * r, w = z * z;
  const double even = z * (3.33333333333329318027e-01lf + w * (1.42857142725034663711e-01lf + w * (9.09088713343650656196e-02lf
      + w * (6.66107313738753120669e-02lf + w * (4.97687799461593236017e-02lf + w * 1.62858201153657823623e-02lf)))));
  const double odd = w * (-1.99999999998764832476e-01lf + w * (-1.11111104054623557880e-01lf + w * (-7.69187620504482999495e-02lf
      + w * (-5.83357013379057348645e-02lf + w * -3.65315727442169155270e-02lf))));
  const double y = high - ((r * (even + odd) - low) - r);
  return x < 0.0lf ? -y : isnan(x) || x == 0.0lf ? x : y;
}
double math_atan2(double y, double x) {
  const double pi = 3.1415926535897931160e+00lf, pi_low = 1.2246467991473531772e-16lf;
  if (isnan(x) || isnan(y)) return x + y;
  const bool left = (unpackDouble2x32(x).y >> 31) != 0, below = (unpackDouble2x32(y).y >> 31) != 0;
  const double ax = abs(x), ay = abs(y);
  double angle;
  if (ay == 0.0lf) angle = 0.0lf;
  else if (isinf(ax) && isinf(ay)) angle = 0.25lf * pi;
  else if (isinf(ay) || ax == 0.0lf) angle = 0.5lf * pi;
  else angle = math_atan(ay / ax);
  angle = left ? pi - (angle - pi_low) : angle;
  return below ? -angle : angle;
}
double math_asin(double x) { return math_atan2(x, sqrt((1.0lf - x) * (1.0lf + x))); }
double math_acos(double x) { return 2.0lf * math_atan2(sqrt(1.0lf - x), sqrt(1.0lf + x)); }

// e^(x + tail) for a small tail.
double exp_of_sum(double x, double tail) {
  if (x > 709.782712893383973096lf) return DOUBLE_INFINITY;
  if (x < -745.2lf) return 0.0lf;
  if (isnan(x)) return x;
  const double n = roundEven(x * 1.44269504088896338700e+00lf);
  precise double high = x - n * 6.93147180369123816490e-01lf;
  precise double low = n * 1.90821492927058770002e-10lf - tail;
  precise double r = high - low;
  const double z = r * r;
  const double c = r - z * (1.66666666666666019037e-01lf + z * (-2.77777777770155933842e-03lf
      + z * (6.61375632143793436117e-05lf + z * (-1.65339022054652515390e-06lf + z * 4.13813679705723846039e-08lf))));
  const double y = 1.0lf - ((low - (r * c) / (2.0lf - c)) - high);
  const int k = int(n), half_k = k / 2;
  return y * power_of_two(half_k) * power_of_two(k - half_k);
}
double math_exp(double x) { return exp_of_sum(x, 0.0lf); }

// x = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2); x > 0 and finite.
void split_exponent(double x, out double k, out double f) {
  const bool tiny = x < 2.2250738585072014e-308lf;
  const uvec2 bits = unpackDouble2x32(tiny ? x * 18014398509481984.0lf : x);
  const uint high = bits.y - 0x3fe6a09eu;
  f = packDouble2x32(uvec2(bits.x, (high & 0xfffffu) + 0x3fe6a09eu)) - 1.0lf;
  k = double(int(high) >> 20) - (tiny ? 54.0lf : 0.0lf);
}
double log_series(double z) {  // (log((1 + s) / (1 - s)) / s - 2) / z for z = s^2
  return 6.666666666666735130e-01lf + z * (3.999999999940941908e-01lf + z * (2.857142874366239149e-01lf
      + z * (2.222219843214978396e-01lf + z * (1.818357216161805012e-01lf + z * (1.531383769920937332e-01lf
      + z * 1.479819860511658591e-01lf)))));
}
double math_log(double x) {
  if (!(x > 0.0lf)) return x == 0.0lf ? -DOUBLE_INFINITY : DOUBLE_NAN;
  if (isinf(x)) return x;
  double k, f;
  split_exponent(x, k, f);
  const double s = f / (2.0lf + f), z = s * s, half_square = 0.5lf * f * f;
  const double rest = s * (half_square + z * log_series(z)) + k * 1.90821492927058770002e-10lf;
  return k * 6.93147180369123816490e-01lf - ((half_square - rest) - f);
}

// a b without rounding: high + low (T. J. Dekker 1971).
void exact_product(double a, double b, out double high, out double low) {
  precise double p = a * b;
  precise double sa = 134217729.0lf * a, ah = sa - (sa - a), al = a - ah;
  precise double sb = 134217729.0lf * b, bh = sb - (sb - b), bl = b - bh;
  precise double error = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
  high = p;
  low = error;
}
double pow_of_positive(double a, double y) {
  // log a to about 65 bits as high + low, times y without rounding
  double k, f, ph, pl;
  split_exponent(a, k, f);
  precise double d = 2.0lf + f, d_low = f - (d - 2.0lf);
  precise double s = f / d;
  exact_product(s, d, ph, pl);
  precise double s_low = (((f - ph) - pl) - s * d_low) / d;
  const double z = s * s;
  precise double series = 2.0lf * s_low + s * z * log_series(z);
  precise double base = k * 6.93147180369123816490e-01lf, twice = 2.0lf * s;
  precise double sum = base + twice;
  precise double back = sum - base;
  precise double error = (base - (sum - back)) + (twice - back);
  precise double low = error + (series + k * 1.90821492927058770002e-10lf);
  precise double high = sum + low;
  low = (sum - high) + low;
  if (abs(y * high) > 1000.0lf) return exp_of_sum(y * high, 0.0lf);
  exact_product(y, high, ph, pl);
  return exp_of_sum(ph, pl + y * low);
}
uint high_word(double x) { return unpackDouble2x32(x).y; }
GRAPHOPT_POW(double, pow_of_positive, high_word, DOUBLE_INFINITY, DOUBLE_NAN)
#else
#include "two_float_math.glsl"
#endif

#endif
