// A fixed pool of threads for parallel loops with a static, reproducible partition.
//
// Two kinds of regions:
//
//   run_shares(n, task)  n independent shares. Whoever is awake takes the next one, the caller first of all:
//   a
//                        region never waits for a thread that has yet to wake up.
//   run_team(n, task)    n members that may wait for each other (SpinBarrier), a thread each.
//
// Beside other programs a thread that is waited for may have no core, for as long as the scheduler gives it
// to others, at each of hundreds of barriers. So where the caller waits and no worker computes, the region is
// crowded: the caller begins the members that nobody has begun, and the workers hand theirs over to it at
// their next barriers. Members run on stacks of their own (fiber.h): that changes no result. For twenty times
// as long as was lost, regions then are the caller's alone.
//
// In both, share t is the same work whoever does it, so results do not depend on it. Only as many threads are
// woken as there are shares, and each looks for a core of its own (placement.h).
//
// Regions of several callers follow each other. A thread that is in a region already, or waits for one, has
// none but itself for another: while a caller waits, its watch may ask code of the program (stopping.h),
// which may do anything, such as a handler of a signal that evaluates another graph.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/fiber.h"
#include "parallel/placement.h"
#include "parallel/waiting.h"

namespace graphopt {

class SpinBarrier;

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

  // task(t) for t = 0 .. threads - 1, as if at the same time, t = 0 on the calling thread. False, and nothing
  // happens, where there are fewer: num_threads() has changed.
  bool run_team(int threads, const std::function<void(int)>& task);

  // While it lives, regions of its thread are that thread's alone, as within a region. What is made then is
  // partitioned for one thread.
  class Alone {
   public:
    Alone() : before_(is_inside_) { is_inside_ = true; }
    ~Alone() { is_inside_ = before_; }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    const bool before_;
  };

  // Leave regions to their callers for `seconds` from now, as where the machine is crowded.
  void give_way(double seconds);

  // Members of teams that callers have begun or taken over, in all.
  std::int64_t num_taken_over() const { return num_taken_over_.load(std::memory_order_relaxed); }

  ~ThreadPool();

 private:
  friend class SpinBarrier;
  using Clock = std::chrono::steady_clock;
  // A region: its number, its shares, whether they need a thread each.
  struct Region {
    std::uint64_t number;
    int shares;
    bool is_team;
  };
  // Of a team, beside the caller. Where it has paused, `barrier` and `generation` are what it waits for.
  struct Member {
    Fiber fiber;
    std::atomic<bool> is_callers{false};  // begun and paused, for the caller to go on with
    SpinBarrier* barrier = nullptr;
    int generation = 0;
  };
  // Where a thread is: in a region of `pool` (null: in none), on the stack of `member` (null: on its own).
  struct Place {
    ThreadPool* pool = nullptr;
    Member* member = nullptr;
    bool is_caller = false;
  };
  static Place& place();
  struct Worker {
    alignas(64) std::atomic<int> wakes{0};
    std::atomic<bool> is_asleep{false};
    std::thread thread;
    Member member;
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
  void run_task(int share);
  void finish_share();
  bool take(int share, std::uint64_t number);
  void be_member(int index, std::uint64_t number);
  bool run_members();
  std::int64_t computed() const;
  template <class Ready>
  void wait_as_caller(const Ready& ready, Signal& signal, int seen);
  static void meet(SpinBarrier& barrier);
  void note_progress();

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
  std::atomic<bool> is_crowded_{false};  // the region that runs
  Signal progress_;                      // of crowded regions: changes where the caller may go on
  Clock::duration lost_{};               // of the region
  std::atomic<Clock::rep> crowded_until_{0};
  std::atomic<std::int64_t> num_taken_over_{0};
  Region now_{};                                         // of the caller
  std::unique_ptr<std::atomic<std::uint64_t>[]> taken_;  // by share: number of the last region that did it
  std::exception_ptr error_;
  Placement placement_;
  std::vector<std::unique_ptr<Worker>> workers_;  // thread t is workers_[t - 1]
};

// Meeting point of the members of one team: they read for some microseconds, then sleep.
class SpinBarrier {
 public:
  explicit SpinBarrier(int num_members) : num_members_(num_members) {}
  void wait() {
    if (num_members_ > 1) ThreadPool::meet(*this);
  }

 private:
  friend class ThreadPool;

  // Whether this member is the last, which opens the barrier.
  bool arrive(int generation) {
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_members_) return false;
    arrived_.store(0, std::memory_order_relaxed);
    generation_.set(generation + 1);
    return true;
  }

  const int num_members_;
  alignas(64) std::atomic<int> arrived_{0};
  Signal generation_;
};

// Half-open share of [0, size) that thread t of n works on.
inline void partition(std::int64_t size, int t, int n, std::int64_t& begin, std::int64_t& end) {
  begin = size * t / n;
  end = size * (t + 1) / n;
}

}  // namespace graphopt
