// Sine, cosine, exponential, logarithm and arc tangent on the lanes of a chunk, below 2 ulp.
//
// The vectorised formulas hold for ordinary arguments. A vector with an infinite, NaN, tiny or huge lane is
// handed to the C library, lane by lane.
//
// Sine and cosine: Cody-Waite reduction by pi/2 in three parts and the minimax polynomials of fdlibm (Sun
// Microsystems, 1993), with the tail of the reduced argument: below 1 ulp for |x| <= 1e5. Exponential and
// logarithm: reduction by ln 2 in two parts and the rational approximations of fdlibm. Arc tangent: the
// quotient q of the smaller by the larger coordinate, pi/4 taken off above 1/2 (q = (a - b) / (a + b), whose
// numerator is exact there), and the polynomial that interpolates (atan(q)/q - 1)/q^2 at the Chebyshev points
// of q^2 in [0, 1/4].
#pragma once

#include <cmath>

#include "vm/lanes.h"

namespace graphopt::vm {

constexpr double kShift = 6755399441055744.0;            // 1.5 * 2^52: adding it rounds to a whole number
constexpr long long kShiftBits = 0x4338000000000000;     // of kShift; those of kShift + n are larger by n
constexpr double kLn2High = 6.93147180369123816490e-01;  // with 21 trailing zero bits
constexpr double kLn2Low = 1.90821492927058770002e-10;

struct SinCos {
  Vec sin, cos;
};

inline SinCos vec_sincos(Vec x) {
  const Vec shift = broadcast(kShift);
  const Vec shifted = x * 6.36619772367581382433e-01 + shift;
  const IntVec quadrant = (IntVec)shifted;
  const Vec n = shifted - shift;

  // y + tail = x - n pi/2; the products with n are exact
  const Vec t = x - n * 1.57079632673412561417e+00;
  const Vec w2 = n * 6.07710050630396597660e-11;
  const Vec r = t - w2;
  const Vec w = n * 2.02226624879595063154e-21 - ((t - r) - w2);
  const Vec y = r - w;
  const Vec tail = (r - y) - w;

  const Vec z = y * y;
  const Vec v = z * y;
  Vec p = broadcast(1.58969099521155010221e-10);
  p = fma(p, z, broadcast(-2.50507602534068634195e-08));
  p = fma(p, z, broadcast(2.75573137070700676789e-06));
  p = fma(p, z, broadcast(-1.98412698298579493134e-04));
  p = fma(p, z, broadcast(8.33333333332248946124e-03));
  const Vec sine = y - ((z * (0.5 * tail - v * p) - tail) - v * -1.66666666666666324348e-01);

  Vec q = broadcast(-1.13596475577881948265e-11);
  q = fma(q, z, broadcast(2.08757232129817482790e-09));
  q = fma(q, z, broadcast(-2.75573143513906633035e-07));
  q = fma(q, z, broadcast(2.48015872894767294178e-05));
  q = fma(q, z, broadcast(-1.38888888888741095749e-03));
  q = fma(q, z, broadcast(4.16666666666666019037e-02));
  const Vec half = 0.5 * z, top = 1.0 - half;
  const Vec cosine = top + (((1.0 - top) - half) + (z * (z * q) - y * tail));

  const IntVec odd = (quadrant & 1) != 0;
  const Vec s = odd ? cosine : sine, c = odd ? sine : cosine;
  return {(quadrant & 2) != 0 ? -s : s, ((quadrant + 1) & 2) != 0 ? -c : c};
}

// The functions below work on kWidth lanes.

// s = sin(a), c = cos(a); the destinations may be the source.
template <int kWidth>
inline void lanes_sincos(double* s, double* c, const double* a) {
  for (int i = 0; i < kWidth; i += kVectorLanes) {
    const Vec x = load(a + i);
    bool in_range = true;
    for (int l = 0; l < kVectorLanes; ++l) in_range &= std::fabs(x[l]) <= 1e5;
    SinCos result;
    if (in_range) {
      result = vec_sincos(x);
    } else {
      for (int l = 0; l < kVectorLanes; ++l) {
        result.sin[l] = std::sin(x[l]);
        result.cos[l] = std::cos(x[l]);
      }
    }
    store(s + i, result.sin);
    store(c + i, result.cos);
  }
}

template <int kWidth>
inline void lanes_sin(double* d, const double* a) {
  alignas(64) double unused[kWidth];
  lanes_sincos<kWidth>(d, unused, a);
}

template <int kWidth>
inline void lanes_cos(double* d, const double* a) {
  alignas(64) double unused[kWidth];
  lanes_sincos<kWidth>(unused, d, a);
}

// 2^n for whole numbers -1022 <= n <= 1023
inline Vec power_of_two(IntVec n) { return (Vec)((n + 1023) << 52); }

// All x; infinite and NaN as well.
inline Vec vec_exp(Vec x) {
  x = x > 710.0 ? broadcast(710.0) : x;  // both ends: infinity and 0, by the last two products
  x = x < -750.0 ? broadcast(-750.0) : x;
  const Vec shifted = x * 1.44269504088896338700e+00 + broadcast(kShift);
  const Vec n = shifted - broadcast(kShift);
  const Vec high = x - n * kLn2High, low = n * kLn2Low;
  const Vec r = high - low;
  const Vec z = r * r;
  Vec p = broadcast(4.13813679705723846039e-08);
  p = fma(p, z, broadcast(-1.65339022054652515390e-06));
  p = fma(p, z, broadcast(6.61375632143793436117e-05));
  p = fma(p, z, broadcast(-2.77777777770155933842e-03));
  p = fma(p, z, broadcast(1.66666666666666019037e-01));
  const Vec c = r - z * p;
  const Vec y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  const IntVec exponent = (IntVec)shifted - kShiftBits;
  const IntVec half = exponent >> 1;
  return y * power_of_two(half) * power_of_two(exponent - half);
}

// Positive normal x; of others a number that means nothing.
inline Vec vec_log(Vec x) {
  // x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2)
  const IntVec above = (IntVec)((WrappingVec)x - 0x3fe6a09e667f3bcdULL);
  const IntVec exponent = above >> 52;
  const Vec k = (Vec)(exponent + kShiftBits) - broadcast(kShift);
  const Vec f = (Vec)((WrappingVec)x - ((WrappingVec)exponent << 52)) - 1.0;
  const Vec s = f / (2.0 + f);
  const Vec z = s * s;
  Vec p = broadcast(1.479819860511658591e-01);
  p = fma(p, z, broadcast(1.531383769920937332e-01));
  p = fma(p, z, broadcast(1.818357216161805012e-01));
  p = fma(p, z, broadcast(2.222219843214978396e-01));
  p = fma(p, z, broadcast(2.857142874366239149e-01));
  p = fma(p, z, broadcast(3.999999999940941908e-01));
  p = fma(p, z, broadcast(6.666666666666735130e-01));
  const Vec half_square = 0.5 * f * f;
  return k * kLn2High - ((half_square - (s * (half_square + z * p) + k * kLn2Low)) - f);
}

// Angle of (x, y), where the larger of |x| and |y| is in 1e-140 .. 1e140 and the other one too or 0.
inline Vec vec_atan2(Vec y, Vec x) {
  const Vec abs_x = x < 0.0 ? -x : x, abs_y = y < 0.0 ? -y : y;
  const IntVec steep = abs_y > abs_x;
  const Vec large = steep ? abs_y : abs_x, small = steep ? abs_x : abs_y;
  const IntVec upper = small > 0.5 * large;
  const Vec q = (upper ? small - large : small) / (upper ? small + large : large);
  const Vec z = q * q;
  Vec p = broadcast(-0.009215792047089858);
  p = fma(p, z, broadcast(0.025006503566489507));
  p = fma(p, z, broadcast(-0.03806653672057366));
  p = fma(p, z, broadcast(0.04628024868570153));
  p = fma(p, z, broadcast(-0.05240099507994713));
  p = fma(p, z, broadcast(0.05879578429582425));
  p = fma(p, z, broadcast(-0.06666435677235948));
  p = fma(p, z, broadcast(0.07692294712540285));
  p = fma(p, z, broadcast(-0.09090908620322523));
  p = fma(p, z, broadcast(0.11111111100917376));
  p = fma(p, z, broadcast(-0.14285714285599188));
  p = fma(p, z, broadcast(0.19999999999999488));
  p = fma(p, z, broadcast(-0.3333333333333333));
  const Vec zero = broadcast(0.0);
  // angle = base + tail + sign * (q + q z p)
  Vec base = upper ? broadcast(7.85398163397448278999e-01) : zero;
  Vec tail = upper ? broadcast(3.06161699786838301793e-17) : zero;
  Vec sign = broadcast(1.0);
  base = steep ? 1.57079632679489655800e+00 - base : base;
  tail = steep ? 6.12323399573676603587e-17 - tail : tail;
  sign = steep ? -sign : sign;
  base = x < 0.0 ? 3.14159265358979311600e+00 - base : base;
  tail = x < 0.0 ? 1.22464679914735320717e-16 - tail : tail;
  sign = x < 0.0 ? -sign : sign;
  const Vec angle = base + (sign * q + (sign * (q * (z * p)) + tail));
  return (Vec)((IntVec)angle | ((IntVec)y & (IntVec)broadcast(-0.0)));
}

template <int kWidth>
inline void lanes_exp(double* d, const double* a) {
  for (int i = 0; i < kWidth; i += kVectorLanes) store(d + i, vec_exp(load(a + i)));
}

template <int kWidth>
inline void lanes_log(double* d, const double* a) {
  for (int i = 0; i < kWidth; i += kVectorLanes) {
    const Vec x = load(a + i);
    bool in_range = true;
    for (int l = 0; l < kVectorLanes; ++l) in_range &= x[l] >= 2.2250738585072014e-308 && x[l] < HUGE_VAL;
    Vec result;
    if (in_range) {
      result = vec_log(x);
    } else {
      for (int l = 0; l < kVectorLanes; ++l) result[l] = std::log(x[l]);
    }
    store(d + i, result);
  }
}

// d = angle of (x, y)
template <int kWidth>
inline void lanes_atan2(double* d, const double* y, const double* x) {
  for (int i = 0; i < kWidth; i += kVectorLanes) {
    const Vec v = load(y + i), u = load(x + i);
    bool in_range = true;
    for (int l = 0; l < kVectorLanes; ++l) {
      const double a = std::fabs(v[l]), b = std::fabs(u[l]);
      const double large = a > b ? a : b, small = a > b ? b : a;
      in_range &= large >= 1e-140 && large <= 1e140 && (small >= 1e-140 || small == 0.0);
    }
    Vec result;
    if (in_range) {
      result = vec_atan2(v, u);
    } else {
      for (int l = 0; l < kVectorLanes; ++l) result[l] = std::atan2(v[l], u[l]);
    }
    store(d + i, result);
  }
}

template <int kWidth>
inline void lanes_atan(double* d, const double* a) {
  alignas(64) double ones[kWidth];
  for (double& one : ones) one = 1.0;
  lanes_atan2<kWidth>(d, a, ones);
}

}  // namespace graphopt::vm
