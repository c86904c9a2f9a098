// Independent items of uneven size on the threads of the pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt {

// task(item, worker) for item = 0 .. count - 1, each by whoever is free, low numbers first; everybody who
// takes part has a worker = make() of their own. Not within a region. Throws `Stopped` where the caller's
// watch says so; then not all items were done.
template <class Make, class Task>
void for_each_item_with(int count, const Make& make, const Task& task) {
  ThreadPool& pool = ThreadPool::instance();
  const int shares = std::min({count, pool.num_threads(), ThreadPool::max_threads});
  std::atomic<int> next{0};
  const auto share = [&](int) {
    int item = next.fetch_add(1);
    if (item >= count) return;
    auto worker = make();
    for (; item < count && !stop_requested(); item = next.fetch_add(1)) task(item, worker);
  };
  if (shares > 0) pool.run_shares(shares, std::ref(share));
  throw_if_stopped();
}

// The same without workers.
template <class Task>
void for_each_item(int count, const Task& task) {
  for_each_item_with(
      count, [] { return 0; }, [&](int item, int) { task(item); });
}

}  // namespace graphopt
