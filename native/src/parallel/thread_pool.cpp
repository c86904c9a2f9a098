#include "parallel/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>

#include "parallel/cores.h"

namespace graphopt {
namespace {

constexpr int kSpinMicroseconds =
    30;  // of a worker that waits for the next region, and of a caller for the end

// Held across fork(), so that a child does not find it locked by a thread that it does not have.
std::mutex& pool_guard() {
  static auto* guard = [] {
    static auto* made = new std::mutex;
    pthread_atfork([] { made->lock(); }, [] { made->unlock(); }, [] { made->unlock(); });
    return made;
  }();
  return *guard;
}

}  // namespace

thread_local bool ThreadPool::is_inside_ = false;

ThreadPool& ThreadPool::instance() {
  // Never destroyed: a worker may outlive static destruction of other objects. After fork() the child has
  // no workers, so it starts its own.
  static ThreadPool* pool = nullptr;
  static pid_t owner = 0;
  std::lock_guard<std::mutex> lock(pool_guard());
  if (pool == nullptr || owner != getpid()) {
    pool = new ThreadPool;
    owner = getpid();
  }
  return *pool;
}

ThreadPool::ThreadPool() : taken_(new std::atomic<std::uint64_t>[max_threads]()) {
  start(std::min(default_num_threads(), max_threads));
}

ThreadPool::~ThreadPool() { stop(); }

int ThreadPool::threads_for(std::int64_t work, std::int64_t least) const {
  return static_cast<int>(
      std::clamp<std::int64_t>(work / std::max<std::int64_t>(least, 1), 1, num_threads()));
}

void ThreadPool::resize(int num_threads) {
  if (is_inside_) {
    throw std::logic_error(
        "set_num_threads: called from within a parallel region, whose threads cannot change. Call it "
        "before or after, not from a handler or a stop flag that the region asks.");
  }
  const Turn turn(*this);
  stop();
  const int wanted = std::clamp(num_threads, 1, max_threads);
  if (start(wanted)) return;
  throw std::runtime_error(
      "set_num_threads: the system refused to start " + std::to_string(wanted) + " threads; there are " +
      std::to_string(workers_.size() + 1) +
      " now. Ask for fewer, or raise its limits of processes and memory (ulimit -u, -v).");
}

// False where the system gives fewer; those are kept.
bool ThreadPool::start(int num_threads) {
  stopping_ = false;
  const std::uint64_t seen = region().number;
  for (int i = 1; i < num_threads; ++i) workers_.push_back(std::make_unique<Worker>());
  for (int i = 1; i < num_threads; ++i) {
    try {
      workers_[i - 1]->thread = std::thread([this, i, seen] { work(i, seen); });
    } catch (const std::system_error&) {
      workers_.resize(i - 1);
      break;
    }
  }
  num_threads_ = static_cast<int>(workers_.size()) + 1;
  return num_threads_ == num_threads;
}

void ThreadPool::stop() {
  stopping_ = true;
  for (auto& worker : workers_) {
    worker->wakes.fetch_add(1);
    wake_all(worker->wakes);
  }
  for (auto& worker : workers_) worker->thread.join();
  workers_.clear();
}

ThreadPool::Region ThreadPool::region() const {
  const std::uint64_t word = region_.load(std::memory_order_seq_cst);
  return {word >> 16, static_cast<int>((word & 0xffff) >> 1), (word & 1) != 0};
}

bool ThreadPool::run_team(int threads, const std::function<void(int)>& task) {
  if (threads < 1 || threads > num_threads()) return false;
  if (is_inside_) return task(0), true;
  const Turn turn(*this);
  if (threads > num_threads_) return false;
  run_locked(threads, true, task);
  return true;
}

void ThreadPool::run_shares(int shares, const std::function<void(int)>& task) {
  if (shares < 1) return;
  if (shares == 1) return task(0);
  if (is_inside_ || num_threads() == 1) {
    for (int share = 0; share < shares; ++share) task(share);
    return;
  }
  const Turn turn(*this);
  for (int first = 0; first < shares; first += max_threads) {
    const auto from_first = [&](int share) { task(first + share); };
    run_locked(std::min(shares - first, max_threads), false, std::ref(from_first));
  }
}

void ThreadPool::run_locked(int shares, bool is_team, const std::function<void(int)>& task) {
  if (shares == 1) return task(0);
  const std::uint64_t number = region().number + 1;
  task_ = &task;
  watch_ = Watch::current();
  error_ = nullptr;
  unfinished_.store(shares, std::memory_order_relaxed);
  const Region now{number, shares, is_team};
  placement_.begin(number);
  region_.store(number << 16 | static_cast<std::uint64_t>(shares) << 1 | (is_team ? 1 : 0),
                std::memory_order_seq_cst);
  wake_children(0, now);
  if (is_team) {
    do_share(0);
  } else {
    take_shares(0, now);
  }
  const int end = static_cast<int>(number & 0x7fffffff);
  for (int seen = finished_.value(); seen != end; seen = finished_.value()) {
    finished_.wait_while(seen, kSpinMicroseconds);
  }
  task_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

// A tree: thread t wakes 2 t + 1 and 2 t + 2, so that nobody has to wake all.
void ThreadPool::wake_children(int index, const Region& region) {
  const int awake = std::min(region.shares, num_threads_.load(std::memory_order_relaxed));
  for (int child = 2 * index + 1; child <= 2 * index + 2 && child < awake; ++child) {
    Worker& worker = *workers_[child - 1];
    if (!worker.is_asleep.load(std::memory_order_seq_cst)) continue;
    worker.wakes.fetch_add(1, std::memory_order_seq_cst);
    wake_all(worker.wakes);
  }
}

void ThreadPool::do_share(int share) {
  Watch* const own = Watch::current();
  Watch::make_current(watch_);
  try {
    (*task_)(share);
  } catch (...) {
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  Watch::make_current(own);
  const std::uint64_t number = region().number;  // this region's: it has not ended
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    finished_.set(static_cast<int>(number & 0x7fffffff));
  }
}

// All shares that nobody has taken, starting with `first`. A share is taken by setting its number of the last
// region to this one: somebody who comes after the region's end finds them all taken, and touches nothing.
void ThreadPool::take_shares(int first, const Region& region) {
  for (int k = 0; k < region.shares; ++k) {
    const int share = (first + k) % region.shares;
    std::uint64_t last = taken_[share].load(std::memory_order_relaxed);
    if (last >= region.number) continue;
    if (taken_[share].compare_exchange_strong(last, region.number, std::memory_order_acq_rel))
      do_share(share);
  }
}

bool ThreadPool::wait_for_region(Worker& self, std::uint64_t seen) {
  const auto ready = [&] { return stopping_.load() || region().number != seen; };
  while (!spin_until(ready, kSpinMicroseconds)) {
    const int wakes = self.wakes.load(std::memory_order_seq_cst);
    self.is_asleep.store(true, std::memory_order_seq_cst);
    if (!ready()) sleep_while(self.wakes, wakes);
    self.is_asleep.store(false, std::memory_order_seq_cst);
  }
  return !stopping_.load();
}

void ThreadPool::work(int index, std::uint64_t seen) {
  Worker& self = *workers_[index - 1];
  is_inside_ = true;
  while (wait_for_region(self, seen)) {
    const Region now = region();
    seen = now.number;
    wake_children(index, now);
    if (index < now.shares) placement_.settle(now.number);
    if (!now.is_team) {
      take_shares(index, now);
    } else if (index < now.shares) {
      do_share(index);
    }
  }
}

}  // namespace graphopt
