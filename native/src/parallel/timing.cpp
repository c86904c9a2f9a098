#include "parallel/timing.h"

#include <chrono>
#include <functional>
#include <thread>

#include "parallel/thread_pool.h"

namespace graphopt {

std::vector<double> time_regions(int shares, bool is_team, int pause_microseconds, int repeats) {
  using Clock = std::chrono::steady_clock;
  ThreadPool& pool = ThreadPool::instance();
  std::vector<double> seconds;
  for (int k = 0; k < repeats; ++k) {
    // not asleep: the caller computes between regions
    const auto end = Clock::now() + std::chrono::microseconds(pause_microseconds);
    while (Clock::now() < end) spin_pause();
    SpinBarrier barrier(shares);
    const auto start = Clock::now();
    if (is_team) {
      if (!pool.run_team(shares, [&](int) { barrier.wait(); })) return {};
    } else {
      pool.run_shares(shares, [](int) {});
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

}  // namespace graphopt
