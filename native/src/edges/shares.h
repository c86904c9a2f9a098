// Loops over edges on all threads of the pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "parallel/thread_pool.h"

namespace graphopt::edges {

// Items below which waking other threads costs more than it saves, and of each thread from there on.
inline constexpr std::int64_t kSmallestShared = 1 << 15, kSmallestShare = 1 << 13;

inline int num_shares(std::int64_t size) {
  return size < kSmallestShared ? 1 : ThreadPool::instance().threads_for(size, kSmallestShare);
}

// task(t, begin, end) for shares t = 0 .. shares - 1 of [0, size).
template <class Task>
void for_each_share(std::int64_t size, int shares, const Task& task) {
  const auto one = [&](int t) {
    std::int64_t begin, end;
    partition(size, t, shares, begin, end);
    task(t, begin, end);
  };
  ThreadPool::instance().run_shares(shares, std::ref(one));
}

// The same with as many shares as there are threads, and task(begin, end).
template <class Task>
void for_each_share(std::int64_t size, const Task& task) {
  for_each_share(size, num_shares(size),
                 [&](int, std::int64_t begin, std::int64_t end) { task(begin, end); });
}

}  // namespace graphopt::edges
