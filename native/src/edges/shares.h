// Loops over edges on all threads of the pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "parallel/thread_pool.h"

namespace graphopt::edges {

// Items below which waking other threads costs more than it saves.
inline constexpr std::int64_t kSmallestShared = 1 << 15;

inline int num_shares(std::int64_t size) {
  return size < kSmallestShared ? 1 : ThreadPool::instance().num_threads();
}

// task(t, begin, end) for shares t = 0 .. shares - 1 of [0, size).
template <class Task>
void for_each_share(std::int64_t size, int shares, const Task& task) {
  const auto one = [&](int t) {
    std::int64_t begin, end;
    partition(size, t, shares, begin, end);
    task(t, begin, end);
  };
  if (shares == 1) return one(0);
  std::atomic<int> next{0};
  const auto body = [&](int) {
    for (int t = next++; t < shares; t = next++) one(t);
  };
  ThreadPool::instance().run(std::ref(body));
}

// The same with as many shares as there are threads, and task(begin, end).
template <class Task>
void for_each_share(std::int64_t size, const Task& task) {
  for_each_share(size, num_shares(size),
                 [&](int, std::int64_t begin, std::int64_t end) { task(begin, end); });
}

}  // namespace graphopt::edges
