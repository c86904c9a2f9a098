// Two-level segregated fit over a range of offsets (Masmano et al., ECRTS 2004): constant time, low
// fragmentation.
//
// Sizes are multiples of `granularity`. A free range of size s sits in list (f, s'): f = position of the
// highest bit of s, s' = the next 4 bits. A request looks at the smallest list whose ranges are all large
// enough.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace graphopt::vulkan {

class Tlsf {
 public:
  static constexpr std::uint64_t granularity = 256;  // [bytes], alignment of every offset

  explicit Tlsf(std::uint64_t capacity);  // capacity is rounded down to the granularity

  std::optional<std::uint64_t> allocate(std::uint64_t size);  // offset, or nothing where no range fits
  void free(std::uint64_t offset);                            // std::invalid_argument on an unknown offset

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t largest_free() const;
  // Sorted, disjoint, covering, no two free neighbours, lists complete. For tests.
  bool consistent() const;

 private:
  static constexpr int second_bits = 4;
  static constexpr int second_count = 1 << second_bits;
  static constexpr int none = -1;

  struct Range {
    std::uint64_t offset = 0, size = 0;
    int before = none, after = none;             // neighbours in memory
    int previous_free = none, next_free = none;  // neighbours in the free list
    bool is_free = false;
  };

  static void list_of(std::uint64_t units, int& first, int& second);
  int find_free(std::uint64_t units) const;
  int find_in_own_list(std::uint64_t units) const;
  int new_range();
  void link(int range);
  void unlink(int range);

  std::uint64_t capacity_ = 0, used_ = 0;
  std::vector<Range> ranges_;
  std::vector<int> spare_;  // unused entries of ranges_
  std::unordered_map<std::uint64_t, int> allocated_;
  std::uint64_t first_bitmap_ = 0;
  std::array<std::uint32_t, 64> second_bitmap_{};
  std::array<std::array<int, second_count>, 64> heads_;
};

}  // namespace graphopt::vulkan
