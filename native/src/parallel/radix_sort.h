// Stable order of whole numbers in linear time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "parallel/stopping.h"

namespace graphopt {

// Positions of `keys` in ascending order; equal keys keep theirs. Least significant digit first, 11 bits at a
// time, as many digits as the range of the keys has; `keys` is used up as memory. At most 2^31 - 1 keys.
inline std::vector<std::int32_t> sorted_order(std::vector<std::int64_t>& keys) {
  constexpr int kDigitBits = 11, kNumDigits = 1 << kDigitBits;
  const std::size_t n = keys.size();
  std::vector<std::int32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::int32_t>(i);
  if (std::is_sorted(keys.begin(), keys.end())) return order;
  const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
  const std::uint64_t base = static_cast<std::uint64_t>(*least),
                      range = static_cast<std::uint64_t>(*most) - base;

  std::vector<std::int64_t> other_keys(n);
  std::vector<std::int32_t> other_order(n);
  for (int shift = 0; shift < 64 && (range >> shift) != 0; shift += kDigitBits) {
    const auto digit = [&](std::int64_t key) {
      return ((static_cast<std::uint64_t>(key) - base) >> shift) & (kNumDigits - 1);
    };
    std::array<std::size_t, kNumDigits> next{};
    for (std::size_t i = 0; i < n; ++i) {
      throw_if_stopped_at(static_cast<std::int64_t>(i));
      ++next[digit(keys[i])];
    }
    std::size_t start = 0;
    for (std::size_t& count : next) {
      const std::size_t size = count;
      count = start;
      start += size;
    }
    for (std::size_t i = 0; i < n; ++i) {
      throw_if_stopped_at(static_cast<std::int64_t>(i));
      const std::size_t to = next[digit(keys[i])]++;
      other_keys[to] = keys[i];
      other_order[to] = order[i];
    }
    keys.swap(other_keys);
    order.swap(other_order);
  }
  return order;
}

}  // namespace graphopt
