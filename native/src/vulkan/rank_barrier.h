// Where ranks that are threads of one process add numbers.
//
//   total = x_0 + x_1 + ... + x_(n-1), in the order of the ranks: all get the same bits
//
// Each rank copies its numbers into a slot and waits for the others. Slots are two: who has passed the
// barrier of one sum writes those of the next, while others still read. Of many numbers each rank adds one
// piece, and all copy the pieces: a second barrier, but every number is read n times by one rank only.
#pragma once

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "parallel/waiting.h"

namespace graphopt::vulkan {

// Another rank has ended: nobody will come to this sum.
class BarrierBroken : public std::runtime_error {
 public:
  BarrierBroken() : std::runtime_error("Another rank has ended.") {}
};

class RankBarrier {
 public:
  explicit RankBarrier(int size);

  int size() const { return static_cast<int>(places_.size()); }
  // Of all ranks, each once, from a thread of its own; `count` is the same for all. Throws BarrierBroken.
  void sum(int rank, const double* mine, double* total, std::size_t count);
  // Let all who wait, now or later, end with BarrierBroken.
  void abort();

 private:
  struct alignas(64) Place {
    std::vector<double> slots[2];
    unsigned turn = 0;
  };

  void wait_for_all();

  std::vector<Place> places_;
  std::vector<double> totals_[2];
  int spin_microseconds_;
  std::atomic<int> missing_;
  std::atomic<bool> is_broken_{false};
  Signal met_;  // how many times all were there; changes at an abort, too
};

}  // namespace graphopt::vulkan
