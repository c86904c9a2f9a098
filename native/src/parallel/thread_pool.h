// A fixed pool of threads for parallel loops with a static, reproducible partition.
//
// Two kinds of regions:
//
//   run_shares(n, task)  n independent shares. Whoever is awake takes the next one, the caller first of all:
//   a
//                        region never waits for a thread that has yet to wake up.
//   run_team(n, task)    n threads at the same time, which may wait for each other (SpinBarrier).
//
// In both, share t is the same work whoever does it, so results do not depend on it. Only as many threads are
// woken as there are shares, and each looks for a core of its own (placement.h).
//
// Regions of several callers follow each other. A thread that is in a region already, or waits for one, has
// none but itself for another: while a caller waits, its watch may ask code of the program (stopping.h),
// which may do anything, such as a handler of a signal that evaluates another graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/placement.h"
#include "parallel/waiting.h"

namespace graphopt {

// One pool per process and native module.
class ThreadPool {
 public:
  static constexpr int max_threads = 1024;

  static ThreadPool& instance();

  // That a region may have: 1 within one.
  int num_threads() const { return is_inside_ ? 1 : num_threads_.load(std::memory_order_relaxed); }

  // Threads for `work` items where one thread needs `least` of them to be worth waking: 1 .. num_threads().
  int threads_for(std::int64_t work, std::int64_t least) const;

  // Change the number of threads (>= 1). Waits for running work. Throws where the system refuses so many,
  // with those that it gave, and within a region.
  void resize(int num_threads);

  // task(t) for t = 0 .. shares - 1; returns when all are done. The first exception of a task is rethrown.
  // Pass a large lambda through std::ref to avoid an allocation.
  void run_shares(int shares, const std::function<void(int)>& task);

  // task(t) for t = 0 .. threads - 1, all at the same time, t = 0 on the calling thread. False, and nothing
  // happens, where there are fewer: num_threads() has changed.
  bool run_team(int threads, const std::function<void(int)>& task);

  ~ThreadPool();

 private:
  // A region: its number, its shares, whether they need a thread each.
  struct Region {
    std::uint64_t number;
    int shares;
    bool is_team;
  };
  struct Worker {
    alignas(64) std::atomic<int> wakes{0};
    std::atomic<bool> is_asleep{false};
    std::thread thread;
  };

  ThreadPool();
  bool start(int num_threads);
  void stop();
  Region region() const;
  void run_locked(int shares, bool is_team, const std::function<void(int)>& task);
  void work(int index, std::uint64_t seen);
  bool wait_for_region(Worker& self, std::uint64_t seen);
  void wake_children(int index, const Region& region);
  void take_shares(int first, const Region& region);
  void do_share(int share);

  // The calling thread's place among callers, as long as it lives.
  class Turn {
   public:
    explicit Turn(ThreadPool& pool) : pool_(pool) {
      is_inside_ = true;
      pool_.run_mutex_.lock();
    }
    ~Turn() {
      pool_.run_mutex_.unlock();
      is_inside_ = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ThreadPool& pool_;
  };

  static thread_local bool is_inside_;  // a region, or waits for its turn
  std::mutex run_mutex_, error_mutex_;
  const std::function<void(int)>* task_ = nullptr;
  Watch* watch_ = nullptr;                            // of the caller of the region
  alignas(64) std::atomic<std::uint64_t> region_{0};  // number << 16 | shares << 1 | is_team
  alignas(64) std::atomic<int> unfinished_{0};
  Signal finished_;  // the low bits of the number of the last finished region
  std::atomic<bool> stopping_{false};
  std::atomic<int> num_threads_{1};
  std::unique_ptr<std::atomic<std::uint64_t>[]> taken_;  // by share: number of the last region that did it
  std::exception_ptr error_;
  Placement placement_;
  std::vector<std::unique_ptr<Worker>> workers_;  // thread t is workers_[t - 1]
};

// Meeting point of the threads of one team: they read for some microseconds, then let others have the core,
// then sleep.
class SpinBarrier {
 public:
  explicit SpinBarrier(int num_threads) : num_threads_(num_threads) {}
  void wait() {
    if (num_threads_ == 1) return;
    const int generation = generation_.value();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.set(generation + 1);
      return;
    }
    constexpr int reading = 50, yielding = 200;  // [us]
    const auto ready = [&] { return generation_.value() != generation; };
    if (spin_until(ready, reading)) return;
    const auto polite = [&] {
      std::this_thread::yield();
      stop_requested();  // the caller keeps asking while it waits
      return ready();
    };
    if (!spin_until(polite, yielding)) generation_.wait_while(generation, 0);
  }

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  Signal generation_;
};

// Half-open share of [0, size) that thread t of n works on.
inline void partition(std::int64_t size, int t, int n, std::int64_t& begin, std::int64_t& end) {
  begin = size * t / n;
  end = size * (t + 1) / n;
}

}  // namespace graphopt
