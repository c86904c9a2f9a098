#include "linear/schedule.h"

#include <algorithm>
#include <numeric>

#include "linear/strips.h"

namespace graphopt {
namespace {

// Nanoseconds; below, one thread does it all. A team meets at barriers, 40 us of a factorization and 30 of a
// solve.
constexpr double kMinParallelCost = 150e3;
constexpr double kCostPerThread = 50e3;  // nanoseconds that make another thread worth waking and waiting for
constexpr double kLeastShare = 15e3;     // of a thread in a front, and of a thread in a forest that is halved
constexpr double kMostUneven = 1.05;     // load of the fuller half over its part

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

// Deals out the forest: an owner for each root of a subtree, fronts of teams above.
class TreeDealer {
 public:
  explicit TreeDealer(const Forest& forest)
      : own_cost_(forest.cost), cost_(forest.cost), children_(forest.cost.size()) {
    for (std::size_t s = 0; s < cost_.size(); ++s) {
      const std::int32_t parent = forest.parent[s];
      if (parent == -1) {
        roots_.push_back(static_cast<std::int32_t>(s));
      } else {
        cost_[static_cast<std::size_t>(parent)] += cost_[s];
        children_[static_cast<std::size_t>(parent)].push_back(static_cast<std::int32_t>(s));
      }
    }
  }

  void deal(int threads) {
    std::vector<std::int32_t> forest = roots_;
    std::sort(forest.begin(), forest.end(), heavier());
    deal(std::move(forest), 0, threads);
  }

  std::vector<std::pair<std::int32_t, int>> owners;  // roots of subtrees and their threads
  std::vector<TeamFront> team_fronts;

 private:
  struct Heavier {
    const std::vector<double>& cost;
    bool operator()(std::int32_t a, std::int32_t b) const {
      return cost[a] > cost[b] || (cost[a] == cost[b] && a < b);
    }
  };
  Heavier heavier() const { return Heavier{cost_}; }

  // forest: heaviest first.
  void deal(std::vector<std::int32_t> forest, int first, int threads) {
    std::vector<std::int32_t> opened;
    double weight = 0.0;
    for (const int s : forest) weight += cost_[s];
    while (threads > 1 && !forest.empty() && weight > threads * kLeastShare) {
      std::vector<std::int32_t> halves[2];
      if (halve(forest, weight, threads, halves)) {
        forest.clear();
        deal(std::move(halves[0]), first, threads / 2);
        deal(std::move(halves[1]), first + threads / 2, threads - threads / 2);
        break;
      }
      weight -= own_cost_[forest[0]];
      opened.push_back(forest[0]);
      open_heaviest(forest);
    }
    give(forest, first, threads);
    share(std::move(opened), first, threads);
  }

  // Heaviest first, each to the half with less per thread. False where the halves are too uneven.
  bool halve(const std::vector<std::int32_t>& forest, double weight, int threads,
             std::vector<std::int32_t> (&halves)[2]) const {
    const double part[2] = {static_cast<double>(threads / 2), static_cast<double>(threads - threads / 2)};
    double load[2] = {0.0, 0.0};
    const double most = kMostUneven * weight / threads;
    if (cost_[forest[0]] > most * part[1]) return false;
    for (const int s : forest) {
      const int half = (load[0] + cost_[s]) / part[0] <= (load[1] + cost_[s]) / part[1] ? 0 : 1;
      load[half] += cost_[s];
      if (load[half] > most * part[half]) return false;
      halves[half].push_back(s);
    }
    return true;
  }

  void open_heaviest(std::vector<std::int32_t>& forest) const {
    const int node = forest[0];
    forest.erase(forest.begin());
    for (const int child : children_[node])
      forest.insert(std::lower_bound(forest.begin(), forest.end(), child, heavier()), child);
  }

  // Whole subtrees to single threads, longest processing time first.
  void give(const std::vector<std::int32_t>& forest, int first, int threads) {
    std::vector<double> load(threads, 0.0);
    for (const int s : forest) {
      const int thread = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
      load[thread] += cost_[s];
      owners.emplace_back(s, first + thread);
    }
  }

  void share(std::vector<std::int32_t> opened, int first, int threads) {
    std::sort(opened.begin(), opened.end());
    int before = threads;  // workers of the front before this one
    for (const int s : opened) {
      const double shares = own_cost_[s] / kLeastShare;
      const int workers = std::clamp(static_cast<int>(shares), 1, threads);
      const bool is_first = s == opened.front();
      team_fronts.push_back({s, first, threads, workers, is_first || before > 1 || workers > 1});
      before = workers;
    }
  }

  const std::vector<double>& own_cost_;
  std::vector<double> cost_;  // of the subtree
  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::int32_t> roots_;
};

// As many of the pool's threads as the work pays for; where it pays for any beside the caller, two.
int worth_threads(const Forest& forest, int threads) {
  const double cost = std::accumulate(forest.cost.begin(), forest.cost.end(), 0.0);
  if (threads == 1 || cost < kMinParallelCost) return 1;
  return static_cast<int>(std::clamp(cost / kCostPerThread, 2.0, static_cast<double>(threads)));
}

Forest forest_of(const SymbolicFactor& symbolic) {
  Forest forest;
  for (const Supernode& node : symbolic.supernodes) {
    forest.cost.push_back(node.cost);
    forest.parent.push_back(node.parent);
  }
  return forest;
}

}  // namespace

Dealing::Dealing(const Forest& forest, int threads) : num_threads(worth_threads(forest, threads)) {
  const int num = static_cast<int>(forest.cost.size());
  own.resize(num_threads);
  own_team_fronts.resize(num_threads);
  root.assign(num, -1);
  if (num_threads == 1) {
    own[0].resize(num);
    std::iota(own[0].begin(), own[0].end(), 0);
    return;
  }
  TreeDealer dealer(forest);
  dealer.deal(num_threads);
  team_fronts = std::move(dealer.team_fronts);
  for (std::size_t k = 0; k < team_fronts.size(); ++k) {
    const TeamFront& front = team_fronts[k];
    for (int t = front.first; t < front.first + front.range; ++t)
      own_team_fronts[t].push_back(static_cast<std::int32_t>(k));
  }
  std::vector<int> owner(num, -1);
  for (const auto& [subtree, thread] : dealer.owners) {
    owner[subtree] = thread;
    root[subtree] = subtree;
  }
  for (int s = num - 1; s >= 0; --s) {  // parents first
    const std::int32_t parent = forest.parent[s];
    if (root[s] != -1 || parent == -1 || owner[parent] == -1) continue;
    owner[s] = owner[parent];
    root[s] = root[parent];
  }
  for (int s = 0; s < num; ++s) (owner[s] == -1 ? top : own[owner[s]]).push_back(s);
}

std::deque<Meeting> Dealing::meetings() const {
  std::deque<Meeting> found;
  for (const TeamFront& team : team_fronts) found.emplace_back(team.range, team.workers);
  return found;
}

Schedule::Schedule(const SymbolicFactor& symbolic, int threads)
    : Dealing(forest_of(symbolic), threads), planned_for(threads) {
  const auto dim = static_cast<std::int32_t>(symbolic.scalar_source.size());
  for (const std::int32_t subtree : root)
    subtree_end.push_back(subtree == -1 ? dim
                                        : symbolic.supernodes[subtree].first_pivot +
                                              symbolic.supernodes[subtree].num_pivots);
  if (num_threads > 1) top_place.assign(symbolic.scalar_source.size(), -1);
  for (const int s : top) {
    const Supernode& node = symbolic.supernodes[s];
    std::iota(top_place.begin() + node.first_pivot, top_place.begin() + node.first_pivot + node.num_pivots,
              top_dim);
    top_dim += node.num_pivots;
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
  for (std::size_t begin = 0, end = 0; begin < team_fronts.size(); begin = end) {  // range by range
    std::vector<std::int32_t> list;
    const auto is_same = [&](const TeamFront& front) {
      return front.first == team_fronts[begin].first && front.range == team_fronts[begin].range;
    };
    for (; end < team_fronts.size() && is_same(team_fronts[end]); ++end)
      list.push_back(team_fronts[end].front);
    place(list);
  }
}

}  // namespace graphopt
