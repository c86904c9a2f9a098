// Threads of a region each on a core of its own.
//
// Schedulers put a thread that is woken near the one that wakes it, some (of virtual machines, to give cores
// back) on the very same core, and leave it there while both are busy for short times only: a team of two
// then takes more than twice as long as one thread would, for as long as the process lives. So every thread
// of a region notes its core, and who finds it taken asks the scheduler for any of the others, once: it is
// bound to none of them afterwards, where another thread may be busy.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace graphopt {

class Placement {
 public:
  Placement();

  // The caller of region `number` (ascending, from 1) notes its core, before the region begins.
  void begin(std::uint64_t number);
  // A worker notes its core, or moves.
  void settle(std::uint64_t number);

 private:
  static constexpr int max_cores = 1024;
  struct alignas(64) Core {
    std::atomic<std::uint64_t> region{0};  // the last in which a thread was here
  };

  std::vector<int> allowed_;  // cores that this process may use
  std::vector<Core> cores_;
};

}  // namespace graphopt
