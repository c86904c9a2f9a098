// How threads wait for each other: first in a loop that reads, then asleep in the kernel.
//
// A loop sees a change within a tenth of a microsecond; waking a sleeping thread takes 5 to 50, the latter on
// virtual machines whose idle processors are taken away. But a loop that goes on for long takes the core from
// whoever is waited for, where there are more threads than cores.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "parallel/stopping.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#endif

namespace graphopt {

// Tell the processor that this is a waiting loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Read for about `microseconds` until ready() holds; whether it does. By the clock: one pause takes a
// processor between 10 and 140 cycles.
template <class Ready>
bool spin_until(const Ready& ready, int microseconds) {
  constexpr int reads_between_clocks = 32;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  do {
    for (int k = 0; k < reads_between_clocks; ++k) {
      if (ready()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

// Sleep while `word` is `seen`, at most until somebody calls wake_all, or for `longest` microseconds (0: no
// limit); may return early. A thread with a watch (stopping.h) looks at it every 10 ms. Nobody yields
// instead: beside other programs some schedulers (Linux's EEVDF) put off a thread's turns at every call of
// sched_yield, and whoever it waits for meanwhile gets no core sooner.
inline void sleep_while(std::atomic<int>& word, int seen, int longest = 0) {
  if (longest == 0 && Watch::current() != nullptr) longest = 10'000;
#if defined(__linux__)
  static_assert(sizeof word == sizeof(int));
  const timespec limit{0, longest * 1000L};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, longest == 0 ? nullptr : &limit, nullptr, 0);
#else
  constexpr int period = 100;  // [us] there is no portable call that sleeps on a word
  if (word.load(std::memory_order_acquire) == seen) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(longest == 0 || longest > period ? period : longest));
  }
#endif
  stop_requested();
}

inline void wake_all(std::atomic<int>& word) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
  (void)word;
#endif
}

// A number that one thread changes and others wait for.
class Signal {
 public:
  int value() const { return word_.load(std::memory_order_seq_cst); }

  void set(int value) {
    word_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(word_);
  }

  // Of any thread.
  void add() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(word_);
  }

  // Until it is no longer `seen`.
  void wait_while(int seen, int spin_microseconds) {
    if (spin_until([&] { return value() != seen; }, spin_microseconds)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value() == seen) sleep_while(word_, seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // The same for about `microseconds` (below a second), without reading first.
  void wait_for(int seen, int microseconds) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (value() == seen) sleep_while(word_, seen, microseconds);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  alignas(64) std::atomic<int> word_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace graphopt
