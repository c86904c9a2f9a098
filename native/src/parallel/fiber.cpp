#include "parallel/fiber.h"

#include <cstdint>
#include <new>
#include <utility>

#if defined(__GLIBC__)
#include <sys/mman.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace graphopt {

#if defined(__GLIBC__)

namespace {

constexpr std::size_t kStack = std::size_t{1} << 20;
constexpr std::size_t kGuard = std::size_t{1} << 16;  // an overflow ends the process here

// ThreadSanitizer is told which stack runs.
#if defined(__SANITIZE_THREAD__)
void* new_stack() { return __tsan_create_fiber(0); }
void* this_stack() { return __tsan_get_current_fiber(); }
void forget(void* stack) { __tsan_destroy_fiber(stack); }
[[gnu::always_inline]] inline void announce(void* stack) { __tsan_switch_to_fiber(stack, 0); }
#define GRAPHOPT_LEAVES_ANOTHER_STACK __attribute__((no_sanitize("thread")))
#else
void* new_stack() { return nullptr; }
void* this_stack() { return nullptr; }
void forget(void*) {}
void announce(void*) {}
#define GRAPHOPT_LEAVES_ANOTHER_STACK
#endif

}  // namespace

Fiber::Fiber()
    : memory_(mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      announced_(new_stack()) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, kGuard, PROT_NONE);
}

Fiber::~Fiber() {
  forget(announced_);
  munmap(memory_, kStack + kGuard);
}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  has_ended_ = false;
  getcontext(&context_);
  context_.uc_stack.ss_sp = static_cast<char*>(memory_) + kGuard;
  context_.uc_stack.ss_size = kStack;
  context_.uc_link = &resumer_;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(static_cast<std::uint64_t>(address) >> 32),
              static_cast<unsigned>(address));
}

GRAPHOPT_LEAVES_ANOTHER_STACK void Fiber::enter(unsigned high, unsigned low) {
  auto* const fiber = reinterpret_cast<Fiber*>(
      static_cast<std::uintptr_t>(static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint64_t>(low)));
  fiber->body_();
  fiber->has_ended_ = true;
  announce(fiber->announced_resumer_);
}

bool Fiber::resume() {
  announced_resumer_ = this_stack();
  announce(announced_);
  swapcontext(&resumer_, &context_);
  return has_ended_;
}

void Fiber::pause() {
  announce(announced_resumer_);
  swapcontext(&context_, &resumer_);
}

#else

Fiber::Fiber() = default;
Fiber::~Fiber() = default;
void Fiber::start(std::function<void()> body) { body_ = std::move(body); }
bool Fiber::resume() { return body_(), true; }
void Fiber::pause() {}

#endif

}  // namespace graphopt
