// Which thread factors which supernode, and where the Schur complements wait for their parents.
//
// A forest and a range of threads are halved as long as the halves weigh about the same per thread; where
// they do not, the largest root becomes a front that the whole range works on, and its children join the
// forest. So disjoint subtrees end on single threads (`own`), the fronts above them (`top`) on teams: small
// ones far down, all threads at the roots (Pothen and Sun, A mapping algorithm for parallel sparse Cholesky
// factorization, SIAM Journal on Scientific Computing 1993). Decided once, from the structure and the number
// of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "linear/front.h"
#include "linear/supernodes.h"
#include "parallel/thread_pool.h"

namespace graphopt {

// Fronts by number, children before their parents.
struct Forest {
  std::vector<double> cost;          // nanoseconds on one core
  std::vector<std::int32_t> parent;  // or -1
};

// A front of the threads first .. first + range - 1, of which the first `workers` share it.
struct TeamFront {
  std::int32_t front;
  int first, range, workers;
  bool meets;  // the range waits for all of its threads before the front begins
};

// Of a front that several threads share: those that it waits for, and those that work on it.
struct Meeting {
  // GCOVR_EXCL_START - counted where it is inlined
  Meeting(int range, int workers) : start(range), work(workers) {}
  // GCOVR_EXCL_STOP
  SpinBarrier start, work;
  std::atomic<bool> fails{false};  // somebody's work below, so that nothing is to be done
  int failed_pivot = -1;           // that the workers share
};

// Which thread does which front of a forest.
struct Dealing {
  Dealing() = default;
  Dealing(const Forest& forest, int num_threads);

  int num_threads = 0;                                     // 1: serial, all fronts in own[0]
  std::vector<std::vector<std::int32_t>> own;              // per thread: fronts, children first
  std::vector<std::int32_t> top;                           // the others, children first
  std::vector<TeamFront> team_fronts;                      // the same, those of inner ranges first
  std::vector<std::vector<std::int32_t>> own_team_fronts;  // per thread: those of its ranges
  std::vector<std::int32_t> root;  // per front: of the subtree that a single thread has, -1: in the top

  std::deque<Meeting> meetings() const;  // of team_fronts

  // The part of a thread: task(front, team, failed_pivot) for each of its fronts, with what the team shares;
  // returns -1, or the least number >= 0 that a task has returned. One that failed goes on to the meetings,
  // since others wait there, and takes the failure along.
  template <class Task>
  int work(std::deque<Meeting>& meetings, int thread, const Task& task) const;
};

// That of a factor's supernodes.
struct Schedule : Dealing {
  Schedule() = default;
  Schedule(const SymbolicFactor& symbolic, int num_threads);

  int planned_for = 0;                    // threads of the pool this was made for
  std::vector<std::int32_t> top_place;    // (dim) of a pivot of the top among those of the top, else -1
  std::int32_t top_dim = 0;               // pivots of the top
  std::vector<std::int32_t> subtree_end;  // per supernode: end of the pivots of its subtree's root
  std::vector<std::int64_t> update;       // per supernode: offset of its Schur complement
  std::int64_t update_size = 0;           // doubles in all
  std::int32_t max_below = 0;

 private:
  void place_updates(const SymbolicFactor& symbolic);
};

template <class Task>
int Dealing::work(std::deque<Meeting>& meetings, int thread, const Task& task) const {
  const Team alone{0, 1, nullptr, thread};
  int failure = -1;
  for (const std::int32_t front : own[static_cast<std::size_t>(thread)]) {
    int failed = -1;
    failure = task(front, alone, &failed);
    if (failure >= 0) break;
  }
  bool fails = failure >= 0;
  for (const std::int32_t k : own_team_fronts[static_cast<std::size_t>(thread)]) {
    const TeamFront& front = team_fronts[static_cast<std::size_t>(k)];
    Meeting& meeting = meetings[static_cast<std::size_t>(k)];
    if (front.meets) {
      if (fails) meeting.fails.store(true, std::memory_order_relaxed);
      meeting.start.wait();
      fails = meeting.fails.load(std::memory_order_relaxed);
    }
    const int place = thread - front.first;
    if (fails || place >= front.workers) continue;
    const Team team{place, front.workers, &meeting.work, thread};
    const int failed = task(front.front, team, &meeting.failed_pivot);
    if (failed < 0) continue;
    fails = true;
    failure = failure < 0 ? failed : std::min(failure, failed);
  }
  return failure;
}

}  // namespace graphopt
