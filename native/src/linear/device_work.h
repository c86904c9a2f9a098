// Work lists of a factorisation on a device: which workgroup does what, for every dispatch, in one array of
// 32-bit words. A list has 1 to 3 words per workgroup: the front, tiles packed as row | column << 16, and
// what else a kernel needs.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "linear/supernodes.h"

namespace graphopt {

// `num` workgroups, described from word `first` on.
struct WorkRun {
  std::int64_t first = 0, num = 0;
};

// Later columns, from `start` up to `last`, are brought up to date with columns `begin` up to `end`.
struct ColumnUpdate {
  std::int64_t begin = 0, end = 0, start = 0, last = 0;
  WorkRun run;  // empty: no update
};

// One block of columns of a level's large fronts, and what is done beside and after it.
struct PanelStep {
  std::int64_t column, panel;  // panel: the first column that has not yet been brought into these
  WorkRun run;
  ColumnUpdate beside;  // later columns of the group by the block before, while this one is factored
  ColumnUpdate after;   // columns after the group, where it ends here
};

struct SizedRun {
  std::int64_t size, lanes;  // rows of shared memory, invocations
  WorkRun run;
};

struct ColumnRun {
  std::int64_t column;
  WorkRun run;
};

// Everything of one level, in the order in which it runs.
struct LevelWork {
  std::vector<SizedRun> small;
  WorkRun assemble;
  std::vector<PanelStep> steps;
  WorkRun diagonals, complement;
  std::vector<SizedRun> solve_small;
  WorkRun collect;
  std::vector<ColumnRun> forward;
  WorkRun start;
  std::vector<ColumnRun> backward;
};

struct WorkLimits {
  // Columns of a group, which are factored before all later ones are updated by them, where those are many.
  std::int64_t group;
  // Workgroups that a large device runs at once: with fewer, updates go beside the next block's pivots.
  std::int64_t at_once;
  // Rows of fronts that one workgroup solves with, ascending, and its invocations.
  std::vector<std::pair<std::int64_t, std::int64_t>> solve;
};

struct DeviceWork {
  DeviceWork(const SymbolicFactor& factor, const std::vector<std::int32_t>& level, const WorkLimits& limits);

  std::vector<std::uint32_t> words;
  std::int64_t num_diagonals = 1;  // columns of the buffer of diagonal blocks
  std::vector<LevelWork> levels;
};

}  // namespace graphopt
