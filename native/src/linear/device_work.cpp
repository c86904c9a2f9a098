#include "linear/device_work.h"

#include <algorithm>

namespace graphopt {
namespace {

// As in the kernels chol_*: rows and columns of their workgroups.
constexpr std::int64_t kBlock = 32, kPanelRows = 64, kUpdateTile = 64, kAssembleTile = 32, kSolveRows = 128;
constexpr std::int64_t kWhole = 0xffffffff;      // columns up to the last pivot
constexpr std::int64_t kSmall[] = {16, 32, 64};  // rows of small fronts in shared memory

using Fronts = std::vector<std::int32_t>;

std::int64_t tiles(std::int64_t size, std::int64_t tile) { return (size + tile - 1) / tile; }

class WorkLists {
 public:
  WorkLists(const SymbolicFactor& factor, const WorkLimits& limits, DeviceWork& out)
      : factor_(factor), limits_(limits), out_(out) {}

  LevelWork of_level(const Fronts& fronts) {
    LevelWork level;
    Fronts large;
    for (const std::int32_t s : fronts) {
      if (rows(s) > kSmall[2]) large.push_back(s);
    }
    std::int64_t below = 0;
    for (const std::int64_t size : kSmall) {
      const WorkRun run = fronts_between(fronts, below, size);
      if (run.num > 0) level.small.push_back({size, 0, run});
      below = size;
    }
    if (!large.empty()) {
      widest_first(large);
      level.assemble = assemble(large);
      panels(level, large);
      level.complement = tile_run(large, [&](std::int32_t s) { return Tiles{below_of(s), below_of(s)}; });
    }
    solves(level, fronts);
    return level;
  }

 private:
  struct Tiles {
    std::int64_t rows, cols;
  };

  std::int64_t pivots(std::int32_t s) const { return factor_.supernodes[s].num_pivots; }
  std::int64_t num_below(std::int32_t s) const { return factor_.supernodes[s].num_below; }
  std::int64_t rows(std::int32_t s) const { return pivots(s) + num_below(s); }
  std::int64_t below_of(std::int32_t s) const { return tiles(num_below(s), kUpdateTile); }

  template <class... Words>
  void add(Words... words) {
    (out_.words.push_back(static_cast<std::uint32_t>(words)), ...);
  }

  // fill() adds `width` words per workgroup.
  template <class Fill>
  WorkRun run_of(int width, const Fill& fill) {
    const auto first = static_cast<std::int64_t>(out_.words.size());
    fill();
    return {first, (static_cast<std::int64_t>(out_.words.size()) - first) / width};
  }

  WorkRun fronts_between(const Fronts& fronts, std::int64_t below, std::int64_t most) {
    return run_of(1, [&] {
      for (const std::int32_t s : fronts) {
        if (rows(s) > below && rows(s) <= most) add(s);
      }
    });
  }

  void widest_first(Fronts& fronts) const {
    std::stable_sort(fronts.begin(), fronts.end(),
                     [&](std::int32_t a, std::int32_t b) { return pivots(a) > pivots(b); });
  }

  // Tiles (row, column), row >= column, of matrices with so many tile rows and columns.
  template <class Size>
  WorkRun tile_run(const Fronts& fronts, const Size& size) {
    return run_of(2, [&] {
      for (const std::int32_t s : fronts) {
        const Tiles count = size(s);
        for (std::int64_t col = 0; col < count.cols; ++col)
          for (std::int64_t row = col; row < count.rows; ++row) add(s, row | col << 16);
      }
    });
  }

  // Without children only the cleared part below the pivots is needed, where there is one.
  WorkRun assemble(const Fronts& fronts) {
    return run_of(2, [&] {
      for (const std::int32_t s : fronts) {
        const std::int64_t count = tiles(rows(s), kAssembleTile);
        const bool is_leaf = factor_.children_begin[s + 1] == factor_.children_begin[s];
        const std::int64_t below = num_below(s) > 0 ? pivots(s) : rows(s) + kAssembleTile;
        for (std::int64_t col = 0; col < count; ++col) {
          if (is_leaf && (col + 1) * kAssembleTile <= below) continue;
          for (std::int64_t row = col; row < count; ++row) add(s, row | col << 16);
        }
      }
    });
  }

  // Of pivot columns from `start` up to `last`, rows from `start` on.
  Tiles trailing(std::int32_t s, std::int64_t start, std::int64_t last) const {
    if (pivots(s) <= start || last <= start) return {0, 0};
    return {tiles(rows(s) - start, kUpdateTile), tiles(std::min(pivots(s), last) - start, kUpdateTile)};
  }

  std::int64_t num_trailing(const Fronts& fronts, std::int64_t start, std::int64_t last) const {
    std::int64_t num = 0;
    for (const std::int32_t s : fronts) {
      const Tiles count = trailing(s, start, last);
      num += count.cols * count.rows - count.cols * (count.cols - 1) / 2;
    }
    return num;
  }

  ColumnUpdate update(const Fronts& fronts, std::int64_t begin, std::int64_t end, std::int64_t start,
                      std::int64_t last) {
    return {begin, end, start, last,
            tile_run(fronts, [&](std::int32_t s) { return trailing(s, start, last); })};
  }

  void panels(LevelWork& level, const Fronts& fronts) {
    std::vector<std::int64_t> slot(fronts.size() + 1, 0);
    for (std::size_t k = 0; k < fronts.size(); ++k) slot[k + 1] = slot[k] + pivots(fronts[k]);
    out_.num_diagonals = std::max(out_.num_diagonals, slot.back());
    const std::int64_t most = pivots(fronts[0]);
    const std::int64_t outer = num_trailing(fronts, kBlock, kWhole) <= limits_.at_once ? most : limits_.group;
    std::int64_t group = 0;
    bool is_ahead = false;
    for (std::int64_t column = 0; column < most; column += kBlock) {
      PanelStep step{column, group, panel(fronts, slot, column), {}, {}};
      const std::int64_t end = column + kBlock;
      if (column == group) {
        is_ahead = num_trailing(fronts, end, group + outer) + step.run.num <= limits_.at_once;
      } else if (is_ahead) {
        step.panel = column - kBlock;
        step.beside = update(fronts, step.panel, column, end, group + outer);
      }
      if (end - group >= outer) {
        step.after = update(fronts, group, end, end, kWhole);
        group = end;
      }
      level.steps.push_back(step);
    }
    level.diagonals = run_of(3, [&] {
      for (std::size_t k = 0; k < fronts.size(); ++k)
        for (std::int64_t b = 0; b < tiles(pivots(fronts[k]), kBlock); ++b) add(fronts[k], b, slot[k]);
    });
  }

  // Tiles of `tile` rows after a block of columns, at least one, of the fronts that have it: the widest ones.
  template <class Add>
  void for_each_row_tile(const Fronts& fronts, std::int64_t column, std::int64_t tile,
                         const Add& body) const {
    for (std::size_t k = 0; k < fronts.size() && pivots(fronts[k]) > column; ++k) {
      const std::int64_t width = std::min(kBlock, pivots(fronts[k]) - column);
      const std::int64_t count = std::max<std::int64_t>(1, tiles(rows(fronts[k]) - column - width, tile));
      for (std::int64_t t = 0; t < count; ++t) body(k, t);
    }
  }

  WorkRun panel(const Fronts& fronts, const std::vector<std::int64_t>& slot, std::int64_t column) {
    return run_of(3, [&] {
      for_each_row_tile(fronts, column, kPanelRows,
                        [&](std::size_t k, std::int64_t t) { add(fronts[k], t, slot[k]); });
    });
  }

  void solves(LevelWork& level, const Fronts& fronts) {
    std::int64_t below = 0;
    for (const auto& [capacity, lanes] : limits_.solve) {
      const WorkRun run = fronts_between(fronts, below, capacity);
      if (run.num > 0) level.solve_small.push_back({capacity, lanes, run});
      below = capacity;
    }
    Fronts large;
    for (const std::int32_t s : fronts) {
      if (rows(s) > below) large.push_back(s);
    }
    if (large.empty()) return;
    widest_first(large);
    solve_large(level, large);
  }

  void solve_large(LevelWork& level, const Fronts& fronts) {
    level.collect = run_of(1, [&] {
      for (const std::int32_t s : fronts) add(s);
    });
    level.start = run_of(2, [&] {
      for (const std::int32_t s : fronts)
        for (std::int64_t b = 0; b < tiles(pivots(s), kBlock); ++b) add(s, b);
    });
    for (std::int64_t column = 0; column < pivots(fronts[0]); column += kBlock) {
      const WorkRun forward = run_of(2, [&] {
        for_each_row_tile(fronts, column, kSolveRows,
                          [&](std::size_t k, std::int64_t t) { add(fronts[k], t); });
      });
      level.forward.push_back({column, forward});
      const std::int64_t before = std::max<std::int64_t>(1, tiles(column, kSolveRows));
      const WorkRun backward = run_of(2, [&] {
        for (std::size_t k = 0; k < fronts.size() && pivots(fronts[k]) > column; ++k)
          for (std::int64_t t = 0; t < before; ++t) add(fronts[k], t);
      });
      level.backward.push_back({column, backward});
    }
    std::reverse(level.backward.begin(), level.backward.end());
  }

  const SymbolicFactor& factor_;
  const WorkLimits& limits_;
  DeviceWork& out_;
};

}  // namespace

DeviceWork::DeviceWork(const SymbolicFactor& factor, const std::vector<std::int32_t>& level,
                       const WorkLimits& limits) {
  std::vector<Fronts> fronts;
  for (std::size_t s = 0; s < level.size(); ++s) {
    fronts.resize(std::max(fronts.size(), static_cast<std::size_t>(level[s]) + 1));
    fronts[static_cast<std::size_t>(level[s])].push_back(static_cast<std::int32_t>(s));
  }
  WorkLists lists(factor, limits, *this);
  for (const Fronts& own : fronts) levels.push_back(lists.of_level(own));
  if (words.empty()) words.push_back(0);
}

}  // namespace graphopt
