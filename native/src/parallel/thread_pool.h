// A fixed pool of threads for parallel loops with a static, reproducible partition.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/stopping.h"

namespace graphopt {

// Tell the processor that this is a waiting loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One pool per process and CPU module. `run` is not reentrant: a task must not call `run`.
// Workers spin for some microseconds before they sleep, so that regions that follow each other closely start
// in about a microsecond.
class ThreadPool {
 public:
  static ThreadPool& instance();

  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }

  // Change the number of threads (>= 1). Waits for running work.
  void resize(int num_threads);

  // Call task(t) for t = 0 .. num_threads()-1, t = 0 on the calling thread; return when all are done.
  // The first exception thrown by a task is rethrown here. Calls from several threads are serialised, so all
  // threads of one region run at the same time (they may wait for each other, see SpinBarrier).
  // Pass a large lambda through std::ref to avoid an allocation.
  void run(const std::function<void(int)>& task);

  // The same, but nothing happens and false is returned if the number of threads is not `expected`: for a
  // task with a plan for that many threads.
  bool run_exactly(int expected, const std::function<void(int)>& task);

  ~ThreadPool();

 private:
  ThreadPool();
  void start(int num_threads);
  void stop();
  void work(int index, std::uint64_t seen_generation);
  bool wait_for_work(std::uint64_t& seen_generation);
  void run_locked(const std::function<void(int)>& task);

  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* task_ = nullptr;
  Watch* watch_ = nullptr;  // of the caller of the region
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> num_threads_{1};
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

// Meeting point of the threads of one parallel region. Spins briefly, then yields the core.
class SpinBarrier {
 public:
  explicit SpinBarrier(int num_threads) : num_threads_(num_threads) {}
  void wait() {
    if (num_threads_ == 1) return;
    const int generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    for (int spin = 0; generation_.load(std::memory_order_acquire) == generation; ++spin) {
      if (spin < 1000) {
        spin_pause();
      } else {
        std::this_thread::yield();
        stop_requested();  // the caller keeps asking while it waits
      }
    }
  }

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> generation_{0};
};

// Half-open share of [0, size) that thread t of n works on.
inline void partition(std::int64_t size, int t, int n, std::int64_t& begin, std::int64_t& end) {
  begin = size * t / n;
  end = size * (t + 1) / n;
}

}  // namespace graphopt
