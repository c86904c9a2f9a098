// Numbers below 2.2e-308 become zero while this lives, in the calling thread.
//
// Factors and solutions decay away from the diagonal, in large graphs down to denormals, for which cores of
// some makers take a hundred times longer (benchmarks/decay.py).
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace graphopt {

class FlushDenormals {
 public:
  explicit FlushDenormals(bool wanted) : before_(control()) {
    if (wanted) set_control(before_ | kFlush);
  }
  ~FlushDenormals() { set_control(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr std::uint64_t kFlush = 0x8040;  // of results (FTZ) and of operands (DAZ)
  static std::uint64_t control() { return _mm_getcsr(); }
  static void set_control(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = 1u << 24;  // FZ, of both
  static std::uint64_t control() {
    std::uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static constexpr std::uint64_t kFlush = 0;
  static std::uint64_t control() { return 0; }
  static void set_control(std::uint64_t) {}
#endif
  std::uint64_t before_;
};

// Sizes of diagonals and right sides from which products and quotients stay far from 2.2e-308.
struct OrdinarySize {
  static constexpr double kLeast = 1e-100, kLargest = 1e100;
  double least = kLargest, largest = kLeast;

  void add(double value) {
    least = value < least ? value : least;
    largest = value > largest ? value : largest;
  }
  bool holds() const { return least >= kLeast && largest <= kLargest; }
};

}  // namespace graphopt
