// Sine and cosine on the lanes of a chunk.
//
// Cody-Waite reduction by pi/2 in three parts and the minimax polynomials of fdlibm (Sun Microsystems, 1993), with the
// tail of the reduced argument: below 1 ulp for |x| <= 1e5. Larger, infinite and NaN arguments go to the C library.
#pragma once

#include <cmath>

#include "vm/lanes.h"

namespace graphopt::vm {

struct SinCos {
  Vec sin, cos;
};

inline SinCos vec_sincos(Vec x) {
  const Vec shift = broadcast(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to a whole number
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

// s = sin(a), c = cos(a); the destinations may be the source.
inline void lanes_sincos(double* s, double* c, const double* a) {
  for (int i = 0; i < kLanes; i += kVectorLanes) {
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

inline void lanes_sin(double* d, const double* a) {
  alignas(64) double unused[kLanes];
  lanes_sincos(d, unused, a);
}

inline void lanes_cos(double* d, const double* a) {
  alignas(64) double unused[kLanes];
  lanes_sincos(unused, d, a);
}

}  // namespace graphopt::vm
