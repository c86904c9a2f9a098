// Loops over rows on threads of the pool.
#pragma once

#include <cstdint>
#include <functional>

#include "parallel/thread_pool.h"

namespace graphopt {

// task(t, begin, end) for shares t = 0 .. shares - 1 of [0, size).
template <class Task>
void for_each_share(std::int64_t size, int shares, const Task& task) {
  const auto share = [&](int t) {
    std::int64_t begin, end;
    partition(size, t, shares, begin, end);
    task(t, begin, end);
  };
  ThreadPool::instance().run_shares(shares, std::ref(share));
}

}  // namespace graphopt
