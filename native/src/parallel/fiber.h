// A function with a stack of its own, which can pause on one thread and go on on another.
#pragma once

#include <functional>

#if defined(__GLIBC__) || defined(__linux__)
#include <features.h>
#endif
#if defined(__GLIBC__)
#include <ucontext.h>
#endif

namespace graphopt {

class Fiber {
 public:
#if defined(__GLIBC__)
  static constexpr bool can_pause = true;
#else
  static constexpr bool can_pause = false;
#endif

  Fiber();  // std::bad_alloc where the system has no memory for a stack
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() begins with it; it must not throw.
  void start(std::function<void()> body);
  // Run on this thread until the body pauses or ends; whether it has ended.
  bool resume();
  // From within the body: back to whoever resumed it. Thread-local variables may be others afterwards.
  void pause();

 private:
  std::function<void()> body_;
#if defined(__GLIBC__)
  static void enter(unsigned high, unsigned low);
  bool has_ended_ = true;
  void* memory_;
  void *announced_, *announced_resumer_ = nullptr;  // to ThreadSanitizer
  ucontext_t context_, resumer_;
#endif
};

}  // namespace graphopt
