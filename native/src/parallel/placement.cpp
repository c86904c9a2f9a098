#include "parallel/placement.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace graphopt {

#if defined(__linux__)

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
  if (cores_[core].region.exchange(number, std::memory_order_relaxed) != number) return;
  cpu_set_t all, others;
  CPU_ZERO(&all);
  CPU_ZERO(&others);
  for (int one : allowed_) {
    CPU_SET(one, &all);
    if (cores_[one].region.load(std::memory_order_relaxed) != number) CPU_SET(one, &others);
  }
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  begin(number);
  sched_setaffinity(0, sizeof all, &all);
}

#else

Placement::Placement() = default;
void Placement::begin(std::uint64_t) {}
void Placement::settle(std::uint64_t) {}

#endif

}  // namespace graphopt
