// Ending long loops early: whoever calls native code may have a watch, which is asked now and then whether to
// stop.
//
// The watch belongs to the calling thread; the workers of a parallel region see the watch of its caller. Only
// the caller asks (the answer may need Python), all see what it was told. A loop that ends early leaves its
// result unusable and throws `Stopped` after its region, never within.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace graphopt {

class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "asked to stop"; }
};

class Watch {
 public:
  // ask() is called on the thread that made the watch, at most once per `period` seconds, until it says true.
  Watch(std::function<bool()> ask, double period);

  // Ask if it is time and this is the watch's own thread; true once the answer was true.
  bool poll();

  // While held, poll() does not ask: the thread is on a stack of the pool (fiber.h), which Python must not
  // see.
  bool hold(bool is_held) { return std::exchange(is_asking_, is_held); }

  // The watch of this thread, null: none.
  static Watch* current();
  static void make_current(Watch* watch);

 private:
  using Clock = std::chrono::steady_clock;
  const std::function<bool()> ask_;
  const Clock::duration period_;
  const std::thread::id owner_;
  Clock::time_point last_;
  bool is_asking_ = false;  // what the answer calls does not ask again
  std::atomic<bool> stopped_{false};
};

// True once this thread's watch, if it has one, was told to stop.
inline bool stop_requested() {
  Watch* const watch = Watch::current();
  return watch != nullptr && watch->poll();
}

inline void throw_if_stopped() {
  if (stop_requested()) throw Stopped();
}

// The same once in 65,536 rows, for loops over many that take nanoseconds each.
inline void throw_if_stopped_at(std::int64_t row) {
  if ((row & 0xffff) == 0) throw_if_stopped();
}

// What task() will return, on a thread of its own, which is left to itself if nobody waits. The task must own
// everything that it refers to.
template <class Result>
std::future<Result> begin_apart(std::function<Result()> task) {
  std::packaged_task<Result()> packaged(std::move(task));
  std::future<Result> result = packaged.get_future();
  std::thread(std::move(packaged)).detach();
  return result;
}

// What was begun; nobody waits any more if this thread's watch says stop: for library calls that cannot be
// asked.
template <class Result>
Result stoppable(std::future<Result> result) {
  while (result.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) throw_if_stopped();
  return result.get();
}

// Counts work in nanoseconds and asks once per millisecond: for loops whose rounds are shorter than a look at
// the clock.
class PatientStop {
 public:
  bool after(double nanoseconds) {
    work_ += nanoseconds;
    if (work_ < 1e6) return false;
    work_ = 0.0;
    return stop_requested();
  }

 private:
  double work_ = 0.0;
};

}  // namespace graphopt
