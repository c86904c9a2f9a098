#include "parallel/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "parallel/stopping.h"

namespace graphopt {
namespace {

// About 20 microseconds.
constexpr int kSpins = 1500;

// How often the caller of a region looks at its watch while it waits for the others.
constexpr std::chrono::milliseconds kWatchful{10};

int default_num_threads() {
  if (const char* text = std::getenv("GRAPHOPT_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n >= 1) return n;
  }
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadPool& ThreadPool::instance() {
  // Never destroyed: a worker may outlive static destruction of other objects. After fork() the child has
  // no workers, so it starts its own.
  static ThreadPool* pool = nullptr;
  static pid_t owner = 0;
  static std::mutex guard;
  std::lock_guard<std::mutex> lock(guard);
  if (pool == nullptr || owner != getpid()) {
    pool = new ThreadPool;
    owner = getpid();
  }
  return *pool;
}

ThreadPool::ThreadPool() { start(default_num_threads()); }

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::resize(int num_threads) {
  std::lock_guard<std::mutex> run_lock(run_mutex_);
  stop();
  start(std::max(1, num_threads));
}

void ThreadPool::start(int num_threads) {
  stopping_ = false;
  num_threads_ = num_threads;
  for (int i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this, i, g = generation_.load()] { work(i, g); });
  }
}

void ThreadPool::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(const std::function<void(int)>& task) {
  std::lock_guard<std::mutex> run_lock(run_mutex_);
  run_locked(task);
}

bool ThreadPool::run_exactly(int expected, const std::function<void(int)>& task) {
  std::lock_guard<std::mutex> run_lock(run_mutex_);
  if (num_threads() != expected) return false;
  run_locked(task);
  return true;
}

void ThreadPool::run_locked(const std::function<void(int)>& task) {
  if (workers_.empty()) {
    task(0);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    task_ = &task;
    watch_ = Watch::current();
    pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    error_ = nullptr;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  std::exception_ptr own_error;
  try {
    task(0);
  } catch (...) {
    own_error = std::current_exception();
  }
  for (int spin = 0; spin < kSpins && pending_.load(std::memory_order_acquire) != 0; ++spin) spin_pause();
  if (pending_.load(std::memory_order_acquire) != 0) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
    if (watch_ == nullptr) {
      done_.wait(lock, done);
    } else {
      while (!done_.wait_for(lock, kWatchful, done)) {
        lock.unlock();
        watch_->poll();
        lock.lock();
      }
    }
  }
  task_ = nullptr;
  if (own_error) std::rethrow_exception(own_error);
  if (error_) std::rethrow_exception(error_);
}

bool ThreadPool::wait_for_work(std::uint64_t& seen_generation) {
  const auto ready = [&] {
    return stopping_ || generation_.load(std::memory_order_acquire) != seen_generation;
  };
  for (int spin = 0; spin < kSpins && !ready(); ++spin) spin_pause();
  if (!ready()) {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, ready);
  }
  if (stopping_) return false;
  seen_generation = generation_.load(std::memory_order_acquire);
  return true;
}

void ThreadPool::work(int index, std::uint64_t seen_generation) {
  while (wait_for_work(seen_generation)) {
    Watch::make_current(watch_);
    try {
      (*task_)(index);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    Watch::make_current(nullptr);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard<std::mutex> lock(mutex_);  // the caller is either before its check or asleep
      done_.notify_one();
    }
  }
}

}  // namespace graphopt
