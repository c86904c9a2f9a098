// What the instructions compute on one vector of lanes: for the interpreter, and for programs that were
// compiled with the module (vm/machine_code.h). Both give the same digits.
#pragma once

#include <cmath>

#include "vm/lane_math.h"
#include "vm/lanes.h"
#include "vm/planes.h"
#include "vm/program.h"

namespace graphopt::vm {

inline Vec truth(IntVec mask) { return mask ? broadcast(1.0) : broadcast(0.0); }

// f on the lanes, one by one (square roots become one instruction).
template <class F>
inline Vec by_lane(Vec x, F f) {
  alignas(64) double a[kVectorLanes] = {};
  store(a, x);
  for (int i = 0; i < kVectorLanes; ++i) a[i] = f(a[i]);
  return load(a);
}

template <class F>
inline Vec by_lane(Vec x, Vec y, F f) {
  alignas(64) double a[kVectorLanes] = {}, b[kVectorLanes] = {};
  store(a, x);
  store(b, y);
  for (int i = 0; i < kVectorLanes; ++i) a[i] = f(a[i], b[i]);
  return load(a);
}

inline Vec op_ADD(Vec x, Vec y) { return x + y; }
inline Vec op_SUB(Vec x, Vec y) { return x - y; }
inline Vec op_MUL(Vec x, Vec y) { return x * y; }
inline Vec op_NEG(Vec x) { return -x; }
inline Vec op_FMA(Vec x, Vec y, Vec z) { return fma(x, y, z); }
inline Vec op_FMS(Vec x, Vec y, Vec z) { return fma(x, y, -z); }
inline Vec op_FNMA(Vec x, Vec y, Vec z) { return fnma(x, y, z); }
inline Vec op_DOT2(Vec a, Vec b, Vec c, Vec d) { return fma(c, d, a * b); }
inline Vec op_DOT3(Vec a, Vec b, Vec c, Vec d, Vec e, Vec f) { return fma(e, f, fma(c, d, a * b)); }
inline Vec op_RECIP(Vec x) { return 1.0 / x; }
inline Vec op_SQRT(Vec x) {
  return by_lane(x, [](double a) { return std::sqrt(a); });
}
inline Vec op_TAN(Vec x) {
  return by_lane(x, [](double a) { return std::tan(a); });
}
inline Vec op_ASIN(Vec x) {
  return by_lane(x, [](double a) { return std::asin(a); });
}
inline Vec op_ACOS(Vec x) {
  return by_lane(x, [](double a) { return std::acos(a); });
}
inline Vec op_FLOOR(Vec x) {
  return by_lane(x, [](double a) { return std::floor(a); });
}
inline Vec op_POW(Vec x, Vec y) {
  return by_lane(x, y, [](double a, double b) { return std::pow(a, b); });
}
inline Vec op_ABS(Vec x) { return x < 0.0 ? -x : x + 0.0; }
inline Vec op_SIGN(Vec x) { return x > 0.0 ? broadcast(1.0) : x < 0.0 ? broadcast(-1.0) : x; }
// like np.minimum and np.maximum: NaN where either is
inline Vec op_MIN(Vec x, Vec y) { return (x <= y) | (x != x) ? x : y; }
inline Vec op_MAX(Vec x, Vec y) { return (x >= y) | (x != x) ? x : y; }
inline Vec op_LT(Vec x, Vec y) { return truth(x < y); }
inline Vec op_LE(Vec x, Vec y) { return truth(x <= y); }
inline Vec op_EQ(Vec x, Vec y) { return truth(x == y); }
inline Vec op_AND(Vec x, Vec y) { return truth((x != 0.0) & (y != 0.0)); }
inline Vec op_OR(Vec x, Vec y) { return truth((x != 0.0) | (y != 0.0)); }
inline Vec op_NOT(Vec x) { return truth(x == 0.0); }
inline Vec op_SELECT(Vec x, Vec y, Vec z) { return x != 0.0 ? y : z; }

#define GRAPHOPT_BY_VECTOR(name, function)   \
  inline Vec op_##name(Vec x) {              \
    alignas(64) double a[kVectorLanes] = {}; \
    store(a, x);                             \
    function<kVectorLanes>(a, a);            \
    return load(a);                          \
  }
GRAPHOPT_BY_VECTOR(SIN, lanes_sin)
GRAPHOPT_BY_VECTOR(COS, lanes_cos)
GRAPHOPT_BY_VECTOR(EXP, lanes_exp)
GRAPHOPT_BY_VECTOR(LOG, lanes_log)
GRAPHOPT_BY_VECTOR(ATAN, lanes_atan)
#undef GRAPHOPT_BY_VECTOR

inline Vec op_ATAN2(Vec y, Vec x) {
  alignas(64) double a[kVectorLanes] = {}, b[kVectorLanes] = {};
  store(a, y);
  store(b, x);
  lanes_atan2<kVectorLanes>(a, a, b);
  return load(a);
}

inline void op_SINCOS(Vec x, Vec& sine, Vec& cosine) {
  alignas(64) double a[kVectorLanes] = {}, s[kVectorLanes] = {}, c[kVectorLanes] = {};
  store(a, x);
  lanes_sincos<kVectorLanes>(s, c, a);
  sine = load(s);
  cosine = load(c);
}

// The robust kernel for lanes [at, at + kVectorLanes) of a chunk.
inline void op_ROBUST(const RobustContext& robust, int at, Vec chi2, Vec& rho, Vec& weight) {
  const Program& kernel = *robust.kernel;
  const auto reg = [&](std::int32_t r) { return robust.frame + static_cast<std::size_t>(r) * kLanes; };
  if (kernel.input_registers[0] >= 0) store(reg(kernel.input_registers[0]), chi2);
  if (kernel.input_registers[1] >= 0) store(reg(kernel.input_registers[1]), load(robust.width + at));
  execute(kernel, robust.frame, RobustContext{}, kVectorLanes);
  rho = load(reg(kernel.output_registers[0]));
  weight = load(reg(kernel.output_registers[1]));
}

}  // namespace graphopt::vm
