#include "parallel/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "parallel/cores.h"

namespace graphopt {
namespace {

constexpr int kSpinMicroseconds =
    30;  // of a worker that waits for the next region, and of a caller for the end

constexpr int kReadMicroseconds = 50;   // at a barrier, before sleeping
constexpr int kLookMicroseconds = 500;  // of a caller that waits, between looks at who computes
constexpr int kAloneFactor = 20;        // time alone over time lost: a crowded machine costs a twentieth
constexpr std::chrono::milliseconds kShortestAlone{10}, kLongestAlone{2000};

// Null: none yet, or forked from a process whose workers this one does not have. Never destroyed: a worker
// may outlive static destruction of other objects.
std::atomic<ThreadPool*> the_pool{nullptr};

// Held across fork(), so that a child does not find it locked by a thread that it does not have.
std::mutex& pool_guard() {
  static auto* guard = [] {
    static auto* made = new std::mutex;
    pthread_atfork([] { made->lock(); }, [] { made->unlock(); },
                   [] {
                     the_pool.store(nullptr);
                     made->unlock();
                   });
    return made;
  }();
  return *guard;
}

}  // namespace

thread_local bool ThreadPool::is_inside_ = false;

// Never inlined: a member that paused may go on on another thread.
__attribute__((noinline)) ThreadPool::Place& ThreadPool::place() {
  static thread_local Place place;
  return place;
}

ThreadPool& ThreadPool::instance() {
  if (ThreadPool* const pool = the_pool.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard<std::mutex> lock(pool_guard());
  if (the_pool.load() == nullptr) the_pool.store(new ThreadPool);
  return *the_pool.load();
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
  try {
    for (int i = 1; i < num_threads; ++i) workers_.push_back(std::make_unique<Worker>());
  } catch (const std::bad_alloc&) {  // fewer
  }
  const int possible = static_cast<int>(workers_.size()) + 1;
  for (int i = 1; i < possible; ++i) {
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
  const auto in_order = [&] {
    for (int share = 0; share < shares; ++share) task(share);
  };
  if (is_inside_ || num_threads() == 1) return in_order();
  if (shares > max_threads) {
    return run_shares(max_threads, [&](int group) {
      std::int64_t begin, end;
      partition(shares, group, max_threads, begin, end);
      for (std::int64_t share = begin; share < end; ++share) task(static_cast<int>(share));
    });
  }
  const Turn turn(*this);
  if (Clock::now().time_since_epoch().count() < crowded_until_.load()) return in_order();
  run_locked(shares, false, task);
}

void ThreadPool::give_way(double seconds) {
  const auto span = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  crowded_until_.store((Clock::now() + span).time_since_epoch().count());
}

void ThreadPool::run_locked(int shares, bool is_team, const std::function<void(int)>& task) {
  if (shares == 1) return task(0);
  const std::uint64_t number = region().number + 1;
  task_ = &task;
  watch_ = Watch::current();
  error_ = nullptr;
  lost_ = {};
  unfinished_.store(shares, std::memory_order_relaxed);
  now_ = Region{number, shares, is_team};
  const bool is_alone =
      Fiber::can_pause && is_team && Clock::now().time_since_epoch().count() < crowded_until_.load();
  is_crowded_.store(is_alone, std::memory_order_seq_cst);
  placement_.begin(number);
  region_.store(number << 16 | static_cast<std::uint64_t>(shares) << 1 | (is_team ? 1 : 0),
                std::memory_order_seq_cst);
  if (!is_alone) wake_children(0, now_);
  place() = Place{this, nullptr, true};
  if (is_team) {
    run_task(0);  // nobody else takes it
    finish_share();
  } else {
    take_shares(0, now_);
  }
  const int end = static_cast<int>(number & 0x7fffffff);
  const int before = finished_.value();
  const auto has_ended = [&] { return finished_.value() == end; };
  if (!spin_until(has_ended, is_alone ? 0 : kSpinMicroseconds)) wait_as_caller(has_ended, finished_, before);
  place() = Place{};
  if (lost_ > Clock::duration::zero()) {
    const Clock::duration alone =
        std::clamp<Clock::duration>(lost_ * kAloneFactor, kShortestAlone, kLongestAlone);
    crowded_until_.store((Clock::now() + alone).time_since_epoch().count());
  }
  is_crowded_.store(false, std::memory_order_seq_cst);
  task_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

// Processor time of the region's workers, in nanoseconds; negative where the system does not tell.
std::int64_t ThreadPool::computed() const {
  std::int64_t sum = 0;
#if defined(__linux__)
  const int last = std::min(now_.shares - 1, static_cast<int>(workers_.size()));
  for (int t = 0; t < last; ++t) {
    clockid_t clock;
    timespec time;
    if (pthread_getcpuclockid(workers_[t]->thread.native_handle(), &clock) != 0) return -1;
    if (clock_gettime(clock, &time) != 0) return -1;
    sum += static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  }
#else
  sum = -1;
#endif
  return sum;
}

// Until ready(), which `signal` announces by another value than `seen`. The region is crowded once those who
// are waited for compute for less than half of the time.
template <class Ready>
void ThreadPool::wait_as_caller(const Ready& ready, Signal& signal, int seen) {
  if (!is_crowded_.load(std::memory_order_relaxed)) {
    Clock::time_point since = Clock::now();
    std::int64_t before = computed();
    for (;;) {
      signal.wait_for(seen, kLookMicroseconds);
      if (ready()) return;
      const Clock::time_point now = Clock::now();
      const std::int64_t after = computed();
      const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(now - since).count();
      if (waited < kLookMicroseconds * 1000 / 2) continue;
      if (before >= 0 && 2 * (after - before) < waited) {
        lost_ += now - since;
        break;
      }
      since = now;
      before = after;
    }
    if (!Fiber::can_pause || !now_.is_team) {
      const Clock::time_point start = Clock::now();
      while (!ready()) signal.wait_while(seen, 0);
      lost_ += Clock::now() - start;
      return;
    }
    is_crowded_.store(true, std::memory_order_seq_cst);
  }
  for (;;) {
    const int progress = progress_.value();
    if (ready()) return;
    if (run_members()) continue;
    const Clock::time_point start = Clock::now();
    progress_.wait_while(progress, 0);
    lost_ += Clock::now() - start;
  }
}

// All that can go on, each to its next barrier; whether there was any.
bool ThreadPool::run_members() {
  bool any = false;
  for (int t = 1; t < now_.shares; ++t) {
    Member& member = workers_[t - 1]->member;
    if (take(t, now_.number)) {
      member.fiber.start([this, t] { run_task(t); });
      num_taken_over_.fetch_add(1, std::memory_order_relaxed);
    } else if (!member.is_callers.load(std::memory_order_acquire) ||
               member.barrier->generation_.value() == member.generation) {
      continue;
    }
    any = true;
    const bool held = watch_ != nullptr && watch_->hold(true);
    place().member = &member;
    const bool has_ended = member.fiber.resume();
    place().member = nullptr;
    if (watch_ != nullptr) watch_->hold(held);
    member.is_callers.store(!has_ended, std::memory_order_relaxed);
    if (has_ended) finish_share();
    stop_requested();
  }
  return any;
}

// The part of a worker in a team: to the end, or to a barrier where the caller goes on with it. This thread
// arrives there in its place, once its stack is at rest, and counts as a share until it has.
void ThreadPool::be_member(int index, std::uint64_t number) {
  if (is_crowded_.load(std::memory_order_seq_cst) || !take(index, number)) return;
  Watch::make_current(watch_);
  place() = Place{this, nullptr, false};
  Member& member = workers_[index - 1]->member;
  member.fiber.start([this, index] { run_task(index); });
  place().member = &member;
  const bool has_ended = member.fiber.resume();
  place() = Place{};
  Watch::make_current(nullptr);
  if (!has_ended) {
    SpinBarrier& barrier = *member.barrier;
    unfinished_.fetch_add(1, std::memory_order_acq_rel);
    num_taken_over_.fetch_add(1, std::memory_order_relaxed);
    const int generation = member.generation;
    member.is_callers.store(true, std::memory_order_seq_cst);
    barrier.arrive(generation);
    note_progress();
  }
  finish_share();
}

void ThreadPool::meet(SpinBarrier& barrier) {
  const Place here = place();
  ThreadPool& pool = *here.pool;
  const int generation = barrier.generation_.value();
  if (here.member != nullptr) {
    here.member->barrier = &barrier;
    here.member->generation = generation;
    if (!here.is_caller && Fiber::can_pause && pool.is_crowded_.load(std::memory_order_seq_cst)) {
      return here.member->fiber.pause();
    }
  }
  if (barrier.arrive(generation)) return pool.note_progress();
  if (here.member != nullptr && here.is_caller) return here.member->fiber.pause();
  const auto is_open = [&] { return barrier.generation_.value() != generation; };
  const bool reads = !here.is_caller || !pool.is_crowded_.load(std::memory_order_relaxed);
  if (reads && spin_until(is_open, kReadMicroseconds)) return;
  if (here.is_caller) {
    pool.wait_as_caller(is_open, barrier.generation_, generation);
  } else {
    barrier.generation_.wait_while(generation, 0);
  }
}

void ThreadPool::note_progress() {
  if (is_crowded_.load(std::memory_order_seq_cst)) progress_.add();
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

void ThreadPool::run_task(int share) {
  try {
    (*task_)(share);
  } catch (...) {
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::finish_share() {
  const std::uint64_t number = region().number;  // this region's: it has not ended
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    finished_.set(static_cast<int>(number & 0x7fffffff));
    note_progress();
  }
}

// A share is taken by setting its number of the last region to this one: somebody who comes after the
// region's end finds them all taken, and touches nothing.
bool ThreadPool::take(int share, std::uint64_t number) {
  std::uint64_t last = taken_[share].load(std::memory_order_relaxed);
  return last < number && taken_[share].compare_exchange_strong(last, number, std::memory_order_acq_rel);
}

// All shares that nobody has taken, starting with `first`.
void ThreadPool::take_shares(int first, const Region& region) {
  for (int k = 0; k < region.shares; ++k) {
    const int share = (first + k) % region.shares;
    if (!take(share, region.number)) continue;
    Watch* const outer = Watch::current();
    Watch::make_current(watch_);
    run_task(share);
    Watch::make_current(outer);
    finish_share();
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
    if (index < now.shares && !is_crowded_.load(std::memory_order_relaxed)) placement_.settle(now.number);
    if (!now.is_team) {
      take_shares(index, now);
    } else if (index < now.shares) {
      be_member(index, now.number);
    }
  }
}

}  // namespace graphopt
