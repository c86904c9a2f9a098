#include "parallel/placement.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace graphopt {

#if defined(__linux__)

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStay = std::chrono::milliseconds(20);

thread_local bool stays = false;
thread_local Clock::time_point stays_until;

}  // namespace

Placement::Placement() : cores_(max_cores) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int core = 0; core < CPU_SETSIZE && core < max_cores; ++core) {
    if (CPU_ISSET(core, &set)) allowed_.push_back(core);
  }
}

void Placement::begin(std::uint64_t number) {
  const int core = sched_getcpu();
  if (core >= 0 && core < max_cores) cores_[core].region.store(number, std::memory_order_relaxed);
}

void Placement::settle(std::uint64_t number) {
  const int core = sched_getcpu();
  if (core < 0 || core >= max_cores) return;
  if (cores_[core].region.exchange(number, std::memory_order_relaxed) != number) {
    if (stays && Clock::now() > stays_until) release();
    return;
  }
  for (std::size_t k = 0; k < allowed_.size(); ++k) {
    const int other = allowed_[(static_cast<std::size_t>(core) + 1 + k) % allowed_.size()];
    std::uint64_t last = cores_[other].region.load(std::memory_order_relaxed);
    if (last != number && cores_[other].region.compare_exchange_strong(last, number)) return move(other);
  }
}

// To a core and no other, until it is released. Where that is refused, the thread stays where it is.
void Placement::move(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  stays = sched_setaffinity(0, sizeof set, &set) == 0;
  stays_until = Clock::now() + kStay;
}

void Placement::release() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : allowed_) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
  stays = false;
}

#else

Placement::Placement() = default;
void Placement::begin(std::uint64_t) {}
void Placement::settle(std::uint64_t) {}

#endif

}  // namespace graphopt
