// Vectors of float and double with the functions that expressions need, below 2 ulp (see vm/lane_math.h).
//
// Powers are exp(y log |x|): their relative error grows with |y log x|. Vectors of float take what has no
// formula of its own from two vectors of double.
#pragma once

#include <cmath>

#include "vm/lane_math.h"
#include "vm/lanes.h"

namespace graphopt::batch {

using vm::kVectorLanes;

template <class T>
struct Lanes;

template <>
struct Lanes<double> {
  static constexpr int count = kVectorLanes;
  using Vec = vm::Vec;
  using Unaligned = vm::UnalignedVec;
  using Mask = vm::IntVec;
};

template <>
struct Lanes<float> {
  static constexpr int count = 2 * kVectorLanes;
  typedef float Vec __attribute__((vector_size(count * 4), may_alias));
  typedef float Unaligned __attribute__((vector_size(count * 4), may_alias, aligned(4)));
  typedef int Mask __attribute__((vector_size(count * 4), may_alias));
  typedef unsigned Wrapping __attribute__((vector_size(count * 4), may_alias));
};

template <class T>
using Vec = typename Lanes<T>::Vec;
using Floats = Vec<float>;
using Doubles = Vec<double>;
typedef float HalfFloats __attribute__((vector_size(kVectorLanes * 4), may_alias, aligned(4)));

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const Vec<T>*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<Vec<T>*>(p) = v;
}
template <class T>
inline Vec<T> broadcast(T x) {
  return x - Vec<T>{};
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return vm::fma(a, b, c); }

// Whether any lane of a comparison is true.
template <class Mask>
inline bool any(Mask mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX__)
  return _mm256_testz_si256((__m256i)mask, (__m256i)mask) == 0;
#else
  const auto words = (vm::IntVec)mask;
  return (words[0] | words[1]) != 0;
#endif
}

// Lanes where `wrong` is true, from the C library.
template <class V, class Mask, class F>
inline V repaired(V result, Mask wrong, F one_lane) {
  if (any(wrong))
    for (int l = 0; l < static_cast<int>(sizeof(V) / sizeof(result[0])); ++l)
      if (wrong[l]) result[l] = one_lane(l);
  return result;
}

// A function of doubles on floats.
template <class F>
inline Floats by_doubles(Floats x, F f) {
  Floats result;
  for (int half = 0; half < 2; ++half) {
    const auto part = reinterpret_cast<const HalfFloats*>(&x)[half];
    const Doubles y = f(__builtin_convertvector(part, Doubles));
    reinterpret_cast<HalfFloats*>(&result)[half] = __builtin_convertvector(y, HalfFloats);
  }
  return result;
}
template <class F>
inline Floats by_doubles(Floats x, Floats y, F f) {
  Floats result;
  for (int half = 0; half < 2; ++half) {
    const auto a = reinterpret_cast<const HalfFloats*>(&x)[half],
               b = reinterpret_cast<const HalfFloats*>(&y)[half];
    const Doubles z = f(__builtin_convertvector(a, Doubles), __builtin_convertvector(b, Doubles));
    reinterpret_cast<HalfFloats*>(&result)[half] = __builtin_convertvector(z, HalfFloats);
  }
  return result;
}

template <class V>
inline V absolute(V x) {
  return x < 0 ? -x : x + 0;
}

inline Doubles exp(Doubles x) { return vm::vec_exp(x); }
inline Doubles log(Doubles x) {
  Doubles result = vm::vec_log(x);
  result = x < HUGE_VAL ? result : x;  // infinity and NaN stay
  result = x < 0.0 ? broadcast(std::nan("")) : result;
  result = x == 0.0 ? broadcast(-HUGE_VAL) : result;
  const auto tiny = (x > 0.0) & (x < 2.2250738585072014e-308);
  return repaired(result, tiny, [&](int l) { return std::log(x[l]); });
}
inline vm::SinCos sincos(Doubles x) {
  vm::SinCos result = vm::vec_sincos(x);
  const auto wrong = ~(absolute(x) <= 1e5);
  result.sin = repaired(result.sin, wrong, [&](int l) { return std::sin(x[l]); });
  result.cos = repaired(result.cos, wrong, [&](int l) { return std::cos(x[l]); });
  return result;
}
inline Doubles sin(Doubles x) { return sincos(x).sin; }
inline Doubles cos(Doubles x) { return sincos(x).cos; }
inline Doubles tan(Doubles x) {
  const vm::SinCos both = sincos(x);
  return both.sin / both.cos;
}
inline Doubles atan2(Doubles y, Doubles x) {
  const Doubles a = absolute(y), b = absolute(x);
  const Doubles large = a > b ? a : b, small = a > b ? b : a;
  const auto ordinary = (large >= 1e-140) & (large <= 1e140) & ((small >= 1e-140) | (small == 0.0));
  return repaired(vm::vec_atan2(y, x), ~ordinary, [&](int l) { return std::atan2(y[l], x[l]); });
}
inline Doubles pow(Doubles x, Doubles y) {
  const Doubles a = absolute(x);
  const Doubles shifted = y + vm::kShift;
  const auto whole = shifted - vm::kShift == y;
  const auto odd = ((vm::IntVec)shifted & 1) != 0;
  Doubles result = vm::vec_exp(y * log(a));  // 0 and infinity as well, but for 0 * infinity
  const Doubles of_negative = whole ? (odd ? -result : result) : broadcast(std::nan(""));
  result = x < 0.0 ? of_negative : result;
  result = (y == 0.0) | (x == 1.0) ? broadcast(1.0) : result;
  const auto rare = ((x == 0.0) & odd) | ((x <= 0.0) & (absolute(y) >= 2251799813685248.0)) |
                    ((absolute(y) > 1.7976931348623157e308) & (a == 1.0)) | ((x == -HUGE_VAL) & ~whole);
  return repaired(result, rare, [&](int l) { return std::pow(x[l], y[l]); });
}

// Cephes (S. Moshier 1989).
inline Floats exp(Floats x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  x = x > 89.0f ? broadcast(89.0f) : x;  // both ends: infinity and 0, by the last two products
  x = x < -104.0f ? broadcast(-104.0f) : x;
  const Floats shifted = multiply_add(x, broadcast(1.44269504f), broadcast(kShift));
  const Floats n = shifted - kShift;
  Floats r = multiply_add(n, broadcast(-0.693359375f), x);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
    p = multiply_add(p, r, broadcast(c));
  using Ints = Lanes<float>::Mask;
  const Ints exponent = (Ints)shifted - 0x4b400000, half = exponent >> 1;
  const auto power = [](Ints k) { return (Floats)((k + 127) << 23); };
  return (1.0f + multiply_add(r * r, p, r)) * power(half) * power(exponent - half);
}
inline Floats log(Floats x) {
  using Ints = Lanes<float>::Mask;
  const Ints above = (Ints)((Lanes<float>::Wrapping)x - 0x3f3504f3u);  // 1 + f from sqrt(1/2) to sqrt(2)
  const Ints exponent = above >> 23;
  const Floats k = __builtin_convertvector(exponent, Floats);
  const Floats f = (Floats)((above & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;
  Floats p = broadcast(7.0376836292e-2f);
  for (const float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                        -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
    p = multiply_add(p, f, broadcast(c));
  const Floats low = f * z * p - 2.12194440e-4f * k - 0.5f * z;
  Floats result = (f + low) + 0.693359375f * k;
  result = x < HUGE_VALF ? result : x;  // infinity and NaN stay
  result = x < 0.0f ? broadcast(std::nanf("")) : result;
  result = x == 0.0f ? broadcast(-HUGE_VALF) : result;
  const auto tiny = (x > 0.0f) & (x < 1.17549435e-38f);
  return repaired(result, tiny, [&](int l) { return std::log(x[l]); });
}
inline Floats sin(Floats x) {
  return by_doubles(x, [](Doubles v) { return sin(v); });
}
inline Floats cos(Floats x) {
  return by_doubles(x, [](Doubles v) { return cos(v); });
}
inline Floats tan(Floats x) {
  return by_doubles(x, [](Doubles v) { return tan(v); });
}
inline Floats atan2(Floats y, Floats x) {
  return by_doubles(y, x, [](Doubles a, Doubles b) { return atan2(a, b); });
}
inline Floats pow(Floats x, Floats y) {
  return by_doubles(x, y, [](Doubles a, Doubles b) { return pow(a, b); });
}

template <class V, class F>
inline V lane_by_lane(V x, F f) {
  for (int l = 0; l < static_cast<int>(sizeof(V) / sizeof(x[0])); ++l) x[l] = f(x[l]);
  return x;
}

// Sum over the lanes, in a fixed order.
template <class T>
inline double total(Vec<T> v) {
  double sum = 0.0;
  for (int l = 0; l < Lanes<T>::count; ++l) sum += static_cast<double>(v[l]);
  return sum;
}

}  // namespace graphopt::batch
