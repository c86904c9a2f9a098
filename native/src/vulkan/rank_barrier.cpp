#include "vulkan/rank_barrier.h"

#include <algorithm>
#include <string>
#include <thread>

namespace graphopt::vulkan {

namespace {

constexpr std::size_t few = 2048;                       // numbers that every rank adds by itself
constexpr int on_own_core = 2000, on_shared_core = 20;  // [us]

// Ranks wait for their devices and each other in turn: reading for long is right where each has a core and
// another one is left for its driver.
int spin_of(int size) {
  return static_cast<int>(std::thread::hardware_concurrency()) >= 2 * size ? on_own_core : on_shared_core;
}

}  // namespace

RankBarrier::RankBarrier(int size)
    : places_(static_cast<std::size_t>(std::max(size, 1))),
      spin_microseconds_(spin_of(size)),
      missing_(std::max(size, 1)) {
  if (size < 1) throw std::invalid_argument("A barrier has at least one rank, got " + std::to_string(size));
}

void RankBarrier::wait_for_all() {
  const int seen = met_.value();
  if (is_broken_.load()) throw BarrierBroken();
  if (missing_.fetch_sub(1) == 1) {
    missing_.store(size());
    met_.set(seen + 1);
  } else {
    met_.wait_while(seen, spin_microseconds_);
  }
  if (is_broken_.load()) throw BarrierBroken();
}

void RankBarrier::abort() {
  is_broken_.store(true);
  met_.set(met_.value() + 1);
}

void RankBarrier::sum(int rank, const double* mine, double* total, std::size_t count) {
  Place& own = places_.at(static_cast<std::size_t>(rank));
  const unsigned turn = own.turn++ % 2;
  own.slots[turn].assign(mine, mine + count);
  const auto add = [&](double* to, std::size_t first, std::size_t last) {
    const double* left = places_[0].slots[turn].data();
    std::copy(left + first, left + last, to + first);
    for (std::size_t other = 1; other < places_.size(); ++other) {
      const double* next = places_[other].slots[turn].data();
      for (std::size_t i = first; i < last; ++i) to[i] += next[i];
    }
  };
  if (count <= few || size() == 1) {
    wait_for_all();
    add(total, 0, count);
    return;
  }
  if (rank == 0) totals_[turn].resize(count);  // read by nobody: all have passed the barrier of the last sum
  wait_for_all();
  const std::size_t ranks = places_.size(), number = static_cast<std::size_t>(rank);
  add(totals_[turn].data(), count * number / ranks, count * (number + 1) / ranks);
  wait_for_all();
  std::copy(totals_[turn].begin(), totals_[turn].end(), total);
}

}  // namespace graphopt::vulkan
