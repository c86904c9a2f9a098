// A fixed pool of threads for parallel loops with a static, reproducible partition.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace graphopt {

// One pool per process and CPU module. `run` is not reentrant: a task must not call `run`.
class ThreadPool {
 public:
  static ThreadPool& instance();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Change the number of threads (>= 1). Waits for running work.
  void resize(int num_threads);

  // Call task(t) for t = 0 .. num_threads()-1, t = 0 on the calling thread; return when all are done.
  // The first exception thrown by a task is rethrown here. Calls from several threads are serialised.
  void run(const std::function<void(int)>& task);

  ~ThreadPool();

 private:
  ThreadPool();
  void start(int num_threads);
  void stop();
  void work(int index, std::uint64_t seen_generation);

  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* task_ = nullptr;
  std::uint64_t generation_ = 0;
  int pending_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

// Half-open share of [0, size) that thread t of n works on.
inline void partition(std::int64_t size, int t, int n, std::int64_t& begin, std::int64_t& end) {
  begin = size * t / n;
  end = size * (t + 1) / n;
}

}  // namespace graphopt
