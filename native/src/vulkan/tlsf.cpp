#include "vulkan/tlsf.h"

#include <algorithm>
#include <stdexcept>

namespace graphopt::vulkan {
namespace {

int highest_bit(std::uint64_t x) { return 63 - __builtin_clzll(x); }
int lowest_bit(std::uint64_t x) { return __builtin_ctzll(x); }

}  // namespace

Tlsf::Tlsf(std::uint64_t capacity) : capacity_(capacity / granularity * granularity) {
  for (auto& heads : heads_) heads.fill(none);
  if (capacity_ == 0) return;
  const int range = new_range();
  ranges_[range].size = capacity_;
  link(range);
}

// Below 2^second_bits units every size has its own list (first = 0); above, 16 lists per power of two.
void Tlsf::list_of(std::uint64_t units, int& first, int& second) {
  if (units < second_count) {
    first = 0;
    second = static_cast<int>(units);
    return;
  }
  const int high = highest_bit(units);
  first = high - second_bits + 1;
  second = static_cast<int>(units >> (high - second_bits)) - second_count;
}

// Good fit: the first range of the next list up, whose ranges are all large enough. Only where there is none,
// the request's own list is searched, which may hold a range that fits (a block made for one buffer fits
// exactly).
int Tlsf::find_free(std::uint64_t units) const {
  std::uint64_t rounded = units;
  if (units >= second_count) rounded += (std::uint64_t{1} << (highest_bit(units) - second_bits)) - 1;
  int first = 0, second = 0;
  list_of(rounded, first, second);
  std::uint32_t seconds = second_bitmap_[first] & (~std::uint32_t{0} << second);
  if (seconds == 0) {
    const std::uint64_t firsts = first == 63 ? 0 : first_bitmap_ & (~std::uint64_t{0} << (first + 1));
    if (firsts == 0) return find_in_own_list(units);
    first = lowest_bit(firsts);
    seconds = second_bitmap_[first];
  }
  return heads_[first][lowest_bit(seconds)];
}

int Tlsf::find_in_own_list(std::uint64_t units) const {
  int first = 0, second = 0;
  list_of(units, first, second);
  int range = heads_[first][second];
  while (range != none && ranges_[range].size < units * granularity) range = ranges_[range].next_free;
  return range;
}

std::optional<std::uint64_t> Tlsf::allocate(std::uint64_t size) {
  const std::uint64_t rounded =
      std::max<std::uint64_t>(1, (size + granularity - 1) / granularity) * granularity;
  if (rounded > capacity_) return std::nullopt;
  const int range = find_free(rounded / granularity);
  if (range == none) return std::nullopt;
  unlink(range);
  if (ranges_[range].size > rounded) {
    const int rest = new_range();
    Range& whole = ranges_[range];
    ranges_[rest].offset = whole.offset + rounded;
    ranges_[rest].size = whole.size - rounded;
    ranges_[rest].before = range;
    ranges_[rest].after = whole.after;
    if (whole.after != none) ranges_[whole.after].before = rest;
    whole.after = rest;
    whole.size = rounded;
    link(rest);
  }
  used_ += rounded;
  allocated_[ranges_[range].offset] = range;
  return ranges_[range].offset;
}

void Tlsf::free(std::uint64_t offset) {
  const auto found = allocated_.find(offset);
  if (found == allocated_.end()) throw std::invalid_argument("Tlsf::free: no allocation at this offset");
  int range = found->second;
  allocated_.erase(found);
  used_ -= ranges_[range].size;
  auto absorb = [this](int left, int right) {
    ranges_[left].size += ranges_[right].size;
    ranges_[left].after = ranges_[right].after;
    if (ranges_[right].after != none) ranges_[ranges_[right].after].before = left;
    spare_.push_back(right);
  };
  const int after = ranges_[range].after;
  if (after != none && ranges_[after].is_free) {
    unlink(after);
    absorb(range, after);
  }
  const int before = ranges_[range].before;
  if (before != none && ranges_[before].is_free) {
    unlink(before);
    absorb(before, range);
    range = before;
  }
  link(range);
}

int Tlsf::new_range() {
  if (!spare_.empty()) {
    const int range = spare_.back();
    spare_.pop_back();
    ranges_[range] = Range{};
    return range;
  }
  ranges_.emplace_back();
  return static_cast<int>(ranges_.size()) - 1;
}

void Tlsf::link(int range) {
  int first = 0, second = 0;
  list_of(ranges_[range].size / granularity, first, second);
  Range& r = ranges_[range];
  r.is_free = true;
  r.previous_free = none;
  r.next_free = heads_[first][second];
  if (r.next_free != none) ranges_[r.next_free].previous_free = range;
  heads_[first][second] = range;
  first_bitmap_ |= std::uint64_t{1} << first;
  second_bitmap_[first] |= std::uint32_t{1} << second;
}

void Tlsf::unlink(int range) {
  int first = 0, second = 0;
  list_of(ranges_[range].size / granularity, first, second);
  Range& r = ranges_[range];
  if (r.previous_free != none) ranges_[r.previous_free].next_free = r.next_free;
  if (r.next_free != none) ranges_[r.next_free].previous_free = r.previous_free;
  if (heads_[first][second] == range) heads_[first][second] = r.next_free;
  if (heads_[first][second] == none) {
    second_bitmap_[first] &= ~(std::uint32_t{1} << second);
    if (second_bitmap_[first] == 0) first_bitmap_ &= ~(std::uint64_t{1} << first);
  }
  r.is_free = false;
  r.previous_free = r.next_free = none;
}

std::uint64_t Tlsf::largest_free() const {
  if (first_bitmap_ == 0) return 0;
  const int first = highest_bit(first_bitmap_);
  std::uint64_t largest = 0;
  for (int r = heads_[first][highest_bit(second_bitmap_[first])]; r != none; r = ranges_[r].next_free) {
    largest = std::max(largest, ranges_[r].size);
  }
  return largest;
}

bool Tlsf::consistent() const {
  if (capacity_ == 0) return true;
  std::uint64_t listed = 0;
  for (int f = 0; f < 64; ++f) {
    for (int s = 0; s < second_count; ++s) {
      for (int r = heads_[f][s]; r != none; r = ranges_[r].next_free) {
        if (!ranges_[r].is_free) return false;
        listed += ranges_[r].size;
      }
    }
  }
  std::vector<char> spare(ranges_.size(), 0);
  for (int s : spare_) spare[s] = 1;
  std::uint64_t covered = 0;
  std::size_t starts = 0;
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    if (spare[r]) continue;
    const Range& range = ranges_[r];
    covered += range.size;
    starts += range.before == none ? 1 : 0;
    if (range.after == none) continue;
    const Range& next = ranges_[range.after];
    if (next.offset != range.offset + range.size || (range.is_free && next.is_free)) return false;
  }
  return covered == capacity_ && starts == 1 && listed == capacity_ - used_;
}

}  // namespace graphopt::vulkan
