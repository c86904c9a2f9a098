// Vectors of this instruction set, and the width of a chunk.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphopt::vm {

// Edges that run through the interpreter together. Wide enough to hide the dispatch of an instruction, small
// enough for the register file (num_registers * kLanes doubles) to stay in the first two cache levels.
inline constexpr int kLanes = 64;

#if defined(__AVX512F__)
inline constexpr int kVectorLanes = 8;
#elif defined(__AVX__)
inline constexpr int kVectorLanes = 4;
#else
inline constexpr int kVectorLanes = 2;
#endif

typedef double Vec __attribute__((vector_size(kVectorLanes * 8), may_alias));
typedef double UnalignedVec __attribute__((vector_size(kVectorLanes * 8), may_alias, aligned(8)));
typedef long long IntVec __attribute__((vector_size(kVectorLanes * 8), may_alias));
typedef unsigned long long WrappingVec __attribute__((vector_size(kVectorLanes * 8), may_alias));

inline Vec load(const double* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(double* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec load_unaligned(const double* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void store_unaligned(double* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec broadcast(double x) { return x - Vec{}; }

// a * b + c, and c - a * b; one rounding where the processor has it.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

inline Vec fnma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fnmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fnmadd_pd(a, b, c);
#else
  return c - a * b;
#endif
}

// The first `count` (1 .. kVectorLanes) doubles at p, the rest 0. No other memory is touched.
inline Vec load_partial(const double* p, int count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1u), p);
#else
  Vec v{};
  for (int i = 0; i < count; ++i) v[i] = p[i];
  return v;
#endif
}

// Memory on cache line borders.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) {
    void* p = std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64 + 64);
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) { std::free(p); }
  template <class U>
  bool operator==(const AlignedAllocator<U>&) const {
    return true;
  }
  template <class U>
  bool operator!=(const AlignedAllocator<U>&) const {
    return false;
  }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

// The same, but what resize() adds is left unset.
template <class T>
struct UnsetAllocator : AlignedAllocator<T> {
  template <class U>
  struct rebind {
    using other = UnsetAllocator<U>;
  };
  UnsetAllocator() = default;
  template <class U>
  UnsetAllocator(const UnsetAllocator<U>&) {}
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

template <class T>
using UnsetVector = std::vector<T, UnsetAllocator<T>>;

}  // namespace graphopt::vm
