#include "parallel/stopping.h"

#include <utility>

namespace graphopt {
namespace {

thread_local Watch* watch_of_thread = nullptr;

}  // namespace

Watch::Watch(std::function<bool()> ask, double period)
    : ask_(std::move(ask)),
      period_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(period))),
      owner_(std::this_thread::get_id()),
      last_(Clock::now()) {}

bool Watch::poll() {
  if (stopped_.load(std::memory_order_relaxed)) return true;
  if (std::this_thread::get_id() != owner_ || is_asking_) return false;
  const Clock::time_point now = Clock::now();
  if (now - last_ < period_) return false;
  is_asking_ = true;
  const bool answer = ask_();
  is_asking_ = false;
  last_ = Clock::now();
  if (answer) stopped_.store(true, std::memory_order_relaxed);
  return answer;
}

Watch* Watch::current() { return watch_of_thread; }

void Watch::make_current(Watch* watch) { watch_of_thread = watch; }

}  // namespace graphopt
