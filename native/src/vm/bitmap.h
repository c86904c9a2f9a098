// A set of whole numbers below a fixed size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace graphopt::vm {

class Bitmap {
 public:
  explicit Bitmap(std::int64_t size = 0) : words_(static_cast<std::size_t>((size + 63) / 64)) {}

  bool test(std::int64_t i) const { return (words_[static_cast<std::size_t>(i >> 6)] >> (i & 63)) & 1; }
  void set(std::int64_t i) { words_[static_cast<std::size_t>(i >> 6)] |= std::uint64_t{1} << (i & 63); }
  void set_range(std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t count = std::min<std::int64_t>(64 - (begin & 63), end - begin);
      const std::uint64_t ones = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
      words_[static_cast<std::size_t>(begin >> 6)] |= ones << (begin & 63);
      begin += count;
    }
  }

  // Write 0 to those of values[64 begin .. min(64 end, size)) that are not in the set.
  void clear_others(std::int64_t begin, std::int64_t end, double* values, std::int64_t size) const {
    for (std::int64_t w = begin; w < end; ++w) {
      double* block = values + w * 64;
      const int count = static_cast<int>(std::min<std::int64_t>(64, size - w * 64));
      const std::uint64_t word = words_[static_cast<std::size_t>(w)];
      std::uint64_t open = ~word;
      if (count < 64) open &= (std::uint64_t{1} << count) - 1;
      if (open == ~std::uint64_t{0}) {
        std::fill_n(block, 64, 0.0);
        continue;
      }
      while (open != 0) {  // eight numbers at once: most gaps are small blocks, too short for a call
        const int first = __builtin_ctzll(open) & ~7;
        clear_some(block + first, static_cast<unsigned>(open >> first & 0xff));
        open &= ~(std::uint64_t{0xff} << first);
      }
    }
  }

  std::int64_t num_words() const { return static_cast<std::int64_t>(words_.size()); }

 private:
  // Write 0 to those of eight numbers whose bit is set; no others are touched.
  static void clear_some(double* numbers, unsigned bits) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_pd(numbers, static_cast<__mmask8>(bits), _mm512_setzero_pd());
#else
    for (; bits != 0; bits &= bits - 1) numbers[__builtin_ctz(bits)] = 0.0;
#endif
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace graphopt::vm
