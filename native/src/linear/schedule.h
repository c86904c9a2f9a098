// Which thread factors which supernode, and where the Schur complements wait for their parents.
//
// Disjoint subtrees of the assembly tree are dealt out to the threads; the supernodes above them (`top`) are
// worked on by all threads together, one after the other. The split that minimises the estimated time is
// taken. Everything is decided once, from the structure and the number of threads: results are reproducible.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/supernodes.h"

namespace graphopt {

struct Schedule {
  Schedule() = default;
  Schedule(const SymbolicFactor& symbolic, int num_threads);

  int num_threads = 0;                         // 1: serial, all supernodes in own[0]
  int planned_for = 0;                         // threads of the pool this was made for
  std::vector<std::vector<std::int32_t>> own;  // per thread: supernodes, children first
  std::vector<std::int32_t> top;               // the others, children first
  std::vector<std::int32_t> subtree_end;       // per supernode: end of the pivots of its subtree's root
  std::vector<std::int64_t> update;            // per supernode: offset of its Schur complement
  std::int64_t update_size = 0;                // doubles in all
  std::int32_t max_below = 0;

 private:
  void place_updates(const SymbolicFactor& symbolic);
};

// A front this expensive is worth the team's barriers (nanoseconds).
constexpr double kTeamCost = 30e3;

}  // namespace graphopt
