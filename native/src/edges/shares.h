// Loops over edges on all threads of the pool.
#pragma once

#include <cstdint>

#include "parallel/shares.h"

namespace graphopt::edges {

// Items below which waking other threads costs more than it saves, and of each thread from there on.
inline constexpr std::int64_t kSmallestShared = 1 << 15, kSmallestShare = 1 << 13;

inline int num_shares(std::int64_t size) {
  return size < kSmallestShared ? 1 : ThreadPool::instance().threads_for(size, kSmallestShare);
}

using graphopt::for_each_share;

// With as many shares as the size is worth, and task(begin, end).
template <class Task>
void for_each_share(std::int64_t size, const Task& task) {
  for_each_share(size, num_shares(size),
                 [&](int, std::int64_t begin, std::int64_t end) { task(begin, end); });
}

}  // namespace graphopt::edges
