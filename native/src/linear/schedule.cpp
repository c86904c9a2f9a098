#include "linear/schedule.h"

#include <algorithm>
#include <numeric>

#include "linear/strips.h"

namespace graphopt {
namespace {

constexpr double kMinParallelCost = 60e3;  // nanoseconds; below, one thread does it all
constexpr double kCostPerThread = 50e3;  // nanoseconds that make another thread worth waking and waiting for
constexpr int kMaxSplitsPerThread = 32;

// First-fit allocation on a line, at analysis time.
class ArenaPlanner {
 public:
  std::int64_t allocate(std::int64_t size) {
    for (std::size_t i = 0; i < free_.size(); ++i) {
      Range& range = free_[i];
      if (range.size < size) continue;
      const std::int64_t begin = range.begin;
      range.begin += size;
      range.size -= size;
      if (range.size == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      return begin;
    }
    std::int64_t begin = end_;
    if (!free_.empty() && free_.back().begin + free_.back().size == end_) {
      begin = free_.back().begin;
      free_.pop_back();
    }
    end_ = begin + size;
    return begin;
  }

  void release(std::int64_t begin, std::int64_t size) {
    if (size == 0) return;
    auto next = std::lower_bound(free_.begin(), free_.end(), begin,
                                 [](const Range& range, std::int64_t at) { return range.begin < at; });
    next = free_.insert(next, Range{begin, size});
    if (next + 1 != free_.end() && next->begin + next->size == (next + 1)->begin) {
      next->size += (next + 1)->size;
      free_.erase(next + 1);
    }
    if (next != free_.begin() && (next - 1)->begin + (next - 1)->size == next->begin) {
      (next - 1)->size += next->size;
      free_.erase(next);
    }
  }

  std::int64_t end() const { return end_; }

 private:
  struct Range {
    std::int64_t begin, size;
  };
  std::vector<Range> free_;
  std::int64_t end_ = 0;
};

std::int64_t update_doubles(const Supernode& node) { return triangle_size(num_strips(node.num_below)); }

// Cut the forest into subtrees; `owner` is the thread of each subtree's root.
class TreeSplitter {
 public:
  TreeSplitter(const SymbolicFactor& symbolic, int num_threads)
      : symbolic_(symbolic), num_threads_(num_threads), cost_(symbolic.supernodes.size()) {
    for (std::size_t s = 0; s < cost_.size(); ++s) {
      const Supernode& node = symbolic.supernodes[s];
      cost_[s] += node.cost;
      if (node.parent == -1) {
        subtrees_.push_back(static_cast<std::int32_t>(s));
      } else {
        cost_[node.parent] += cost_[s];
      }
    }
  }

  // Owner of each root of the best cut.
  std::vector<std::pair<std::int32_t, int>> best_cut() {
    auto best = assignment();
    double best_time = time_;
    for (int split = 0; split < kMaxSplitsPerThread * num_threads_; ++split) {
      const auto largest = std::max_element(subtrees_.begin(), subtrees_.end(), [&](int a, int b) {
        return cost_[a] < cost_[b] || (cost_[a] == cost_[b] && a < b);
      });
      if (largest == subtrees_.end()) break;
      const int node = *largest;
      subtrees_.erase(largest);
      top_time_ += top_cost(symbolic_.supernodes[node].cost);
      subtrees_.insert(subtrees_.end(), symbolic_.children.begin() + symbolic_.children_begin[node],
                       symbolic_.children.begin() + symbolic_.children_begin[node + 1]);
      auto candidate = assignment();
      if (time_ < best_time) {
        best_time = time_;
        best = std::move(candidate);
      }
      if (top_time_ > best_time) break;
    }
    return best;
  }

 private:
  double top_cost(double cost) const { return cost < kTeamCost ? cost : 5e3 + cost / (0.85 * num_threads_); }

  // Longest processing time first.
  std::vector<std::pair<std::int32_t, int>> assignment() {
    std::sort(subtrees_.begin(), subtrees_.end(),
              [&](int a, int b) { return cost_[a] > cost_[b] || (cost_[a] == cost_[b] && a < b); });
    std::vector<double> load(num_threads_, 0.0);
    std::vector<std::pair<std::int32_t, int>> result;
    for (int s : subtrees_) {
      const int thread = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
      load[thread] += cost_[s];
      result.emplace_back(s, thread);
    }
    time_ = top_time_ + *std::max_element(load.begin(), load.end());
    return result;
  }

  const SymbolicFactor& symbolic_;
  const int num_threads_;
  std::vector<double> cost_;  // of the subtree
  std::vector<std::int32_t> subtrees_;
  double top_time_ = 0.0, time_ = 0.0;
};

// As many of the pool's threads as the work pays for; where it pays for any beside the caller, two.
int worth_threads(const SymbolicFactor& symbolic, int threads) {
  double cost = 0.0;
  for (const Supernode& node : symbolic.supernodes) cost += node.cost;
  if (threads == 1 || cost < kMinParallelCost) return 1;
  return static_cast<int>(std::clamp(cost / kCostPerThread, 2.0, static_cast<double>(threads)));
}

}  // namespace

Schedule::Schedule(const SymbolicFactor& symbolic, int threads) : num_threads(threads), planned_for(threads) {
  const int num = static_cast<int>(symbolic.supernodes.size());
  num_threads = worth_threads(symbolic, threads);
  TreeSplitter splitter(symbolic, num_threads);
  std::vector<int> owner(num, -1);
  subtree_end.assign(num, static_cast<std::int32_t>(symbolic.scalar_source.size()));
  own.resize(num_threads);
  if (num_threads == 1) {
    own[0].resize(num);
    std::iota(own[0].begin(), own[0].end(), 0);
  } else {
    std::vector<bool> is_root(num, false);
    for (const auto& [root, thread] : splitter.best_cut()) {
      owner[root] = thread;
      is_root[root] = true;
    }
    for (int s = num - 1; s >= 0; --s) {  // parents first
      const Supernode& node = symbolic.supernodes[s];
      if (is_root[s]) {
        subtree_end[s] = node.first_pivot + node.num_pivots;
      } else if (node.parent != -1 && owner[node.parent] != -1) {
        owner[s] = owner[node.parent];
        subtree_end[s] = subtree_end[node.parent];
      }
    }
    for (int s = 0; s < num; ++s) (owner[s] == -1 ? top : own[owner[s]]).push_back(s);
  }
  for (const Supernode& node : symbolic.supernodes) max_below = std::max(max_below, node.num_below);
  place_updates(symbolic);
}

void Schedule::place_updates(const SymbolicFactor& symbolic) {
  update.assign(symbolic.supernodes.size(), 0);
  std::vector<bool> placed(update.size(), false);
  const auto place = [&](const std::vector<std::int32_t>& list) {
    ArenaPlanner arena;
    for (int s : list) {
      update[s] = update_size + arena.allocate(update_doubles(symbolic.supernodes[s]));
      placed[s] = true;
      for (int c = symbolic.children_begin[s]; c < symbolic.children_begin[s + 1]; ++c) {
        const int child = symbolic.children[c];
        if (!placed[child] || update[child] < update_size) continue;  // in another list's arena
        arena.release(update[child] - update_size, update_doubles(symbolic.supernodes[child]));
      }
    }
    update_size += arena.end();
  };
  for (const auto& list : own) place(list);
  place(top);
}

}  // namespace graphopt
