// A mutex of an object that one call at a time may use.
//
// A call that takes long asks code of the program whether to stop (stopping.h). If that code, a handler of a
// signal for example, uses the same object, it gets an error: it would wait for its own caller.
#pragma once

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace graphopt {

struct CalledWithin : std::logic_error {
  CalledWithin()
      : std::logic_error(
            "a solver or linearizer was called from within one of its own calls, by a handler of a signal, a "
            "stop flag or a finalizer. Note there what is to be done, and do it after the call.") {}
};

class CallMutex {
 public:
  void lock() {
    if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) throw CalledWithin();
    mutex_.lock();
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void unlock() {
    owner_.store(std::thread::id(), std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{std::thread::id()};
};

}  // namespace graphopt
