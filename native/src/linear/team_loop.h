// Parallel regions for members of a team, and sums in a fixed order.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "linear/front.h"
#include "parallel/thread_pool.h"

namespace graphopt {

// Call prepare(num_threads) once and then task(team) on as many threads of the pool, at most `most`: each one
// more makes every barrier longer.
template <class Prepare, class Task>
void run_team(int most, const Prepare& prepare, const Task& task) {
  ThreadPool& pool = ThreadPool::instance();
  for (;;) {
    const int threads = std::clamp(most, 1, pool.num_threads());
    prepare(threads);
    if (threads == 1) return task(Team{});
    SpinBarrier barrier(threads);
    const auto body = [&](int thread) { task(Team{thread, threads, &barrier, thread}); };
    if (pool.run_team(threads, std::ref(body))) return;  // else the pool was resized meanwhile
  }
}

// Cut columns 0 .. n of a cumulative cost (n + 1 entries, ascending from 0) into equal shares: first column
// of share t of `num_shares`.
inline int share_begin(const std::vector<std::int64_t>& cumulative, int t, int num_shares) {
  const int n = static_cast<int>(cumulative.size()) - 1;
  if (t >= num_shares) return n;
  const std::int64_t target = cumulative.back() / num_shares * t;
  int low = 0, high = n;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (cumulative[middle] < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Private result vectors of the threads, added in the order of the threads.
class ThreadVectors {
 public:
  void require(int num_threads, std::int64_t dim) {
    if (static_cast<int>(vectors_.size()) < num_threads) vectors_.resize(num_threads);
    for (std::vector<double>& vector : vectors_) {
      if (static_cast<std::int64_t>(vector.size()) < dim) vector.resize(static_cast<std::size_t>(dim));
    }
  }
  double* of(int thread) { return vectors_[thread].data(); }
  double sum(std::int64_t i, int num_threads) const {
    double total = vectors_[0][i];
    for (int t = 1; t < num_threads; ++t) total += vectors_[t][i];
    return total;
  }

 private:
  std::vector<std::vector<double>> vectors_;
};

}  // namespace graphopt
