// Which thread factors which supernode, and where the Schur complements wait for their parents.
//
// A forest and a range of threads are halved as long as the halves weigh about the same per thread; where
// they do not, the largest root becomes a front that the whole range works on, and its children join the
// forest. So disjoint subtrees end on single threads (`own`), the fronts above them (`top`) on teams: small
// ones far down, all threads at the roots (Pothen and Sun, A mapping algorithm for parallel sparse Cholesky
// factorization, SIAM Journal on Scientific Computing 1993). Decided once, from the structure and the number
// of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/supernodes.h"

namespace graphopt {

// A front of the threads first .. first + range - 1, of which the first `workers` share it.
struct TeamFront {
  std::int32_t supernode;
  int first, range, workers;
  bool meets;  // the range waits for all of its threads before the front begins
};

struct Schedule {
  Schedule() = default;
  Schedule(const SymbolicFactor& symbolic, int num_threads);

  int num_threads = 0;                                     // 1: serial, all supernodes in own[0]
  int planned_for = 0;                                     // threads of the pool this was made for
  std::vector<std::vector<std::int32_t>> own;              // per thread: supernodes, children first
  std::vector<std::int32_t> top;                           // the others, children first
  std::vector<TeamFront> team_fronts;                      // the same, those of inner ranges first
  std::vector<std::vector<std::int32_t>> own_team_fronts;  // per thread: those of its ranges
  std::vector<std::int32_t> top_place;    // (dim) of a pivot of the top among those of the top, else -1
  std::int32_t top_dim = 0;               // pivots of the top
  std::vector<std::int32_t> subtree_end;  // per supernode: end of the pivots of its subtree's root
  std::vector<std::int64_t> update;       // per supernode: offset of its Schur complement
  std::int64_t update_size = 0;           // doubles in all
  std::int32_t max_below = 0;

 private:
  void place_updates(const SymbolicFactor& symbolic);
};

}  // namespace graphopt
