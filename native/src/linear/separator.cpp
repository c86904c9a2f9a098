#include "linear/separator.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <utility>

namespace graphopt {
namespace {

constexpr int kCoarsest = 120;  // vertices at which the cut is found
constexpr int kStarts = 8;      // cuts tried there, twice as many for a graph of kManyVertices
constexpr int kManyVertices = 4000;
constexpr int kPasses = 12;          // of refinement, at most
constexpr int kPatience = 500;       // moves without gain until a pass ends, or an eighth of the vertices
constexpr double kMostShare = 0.6;   // of the weight on one side
constexpr int kLargeGraph = 200000;  // vertices from which clusters have four members, not two

std::int64_t total_weight(const WeightedGraph& graph) {
  std::int64_t total = 0;
  for (const std::int32_t weight : graph.weight) total += weight;
  return total;
}

// What makes one split better than another: balance within the limit, then a light separator between halves.
using Score = std::pair<std::int64_t, double>;

Score score_of(const Split& split, std::int64_t most) {
  const double a = static_cast<double>(split.weight[0]), b = static_cast<double>(split.weight[1]);
  const std::int64_t larger = std::max(split.weight[0], split.weight[1]);
  return {std::max<std::int64_t>(0, larger - most),
          static_cast<double>(split.weight[kSeparator]) * (a + b) * (a + b) / std::max(1.0, a * b)};
}

// Moves vertices out of the separator; what they would touch on the other side comes in.
class Refinement {
 public:
  Refinement(const WeightedGraph& graph, Split& split, std::int64_t most)
      : graph_(graph),
        split_(split),
        most_(most),
        pass_of_(graph.size(), 0),
        beyond_(new std::int64_t[graph.size()]) {}

  void run(int passes) {
    side_ = split_.weight[0] <= split_.weight[1] ? 0 : 1;
    for (int idle = 0; pass_ <= passes && idle < 2; ++pass_, side_ = 1 - side_)
      idle = improve() ? 0 : idle + 1;
  }

 private:
  struct Candidate {
    std::int64_t gain;
    std::int32_t vertex;
    bool operator<(const Candidate& other) const {
      return gain != other.gain ? gain < other.gain : vertex > other.vertex;
    }
  };

  std::int64_t gain(int v) const { return graph_.weight[v] - beyond_[v]; }
  bool is_free(int v) const { return split_.side[v] == kSeparator && pass_of_[v] != pass_; }

  void enter(int v) {
    beyond_[v] = 0;
    for (int p = graph_.begin[v]; p < graph_.begin[v + 1]; ++p) {
      const int u = graph_.neighbor[p];
      if (split_.side[u] == 1 - side_) beyond_[v] += graph_.weight[u];
    }
    if (pass_of_[v] != pass_) queue_.push({gain(v), v});
  }

  // One pass; true if the split is better than before.
  bool improve() {
    queue_ = {};
    log_.clear();
    const std::size_t before = split_.separator.size();
    for (std::size_t k = 0; k < before; ++k) enter(split_.separator[k]);
    const Score start = score_of(split_, most_);
    Score best = start;
    std::size_t best_end = 0;
    for (int idle = 0; idle < patience_; ++idle) {
      const int v = next_vertex();
      if (v == -1) break;
      move(v);
      const Score now = score_of(split_, most_);
      if (now < best) {
        best = now;
        best_end = log_.size();
        idle = -1;
      }
    }
    undo(best_end);
    collect();
    return best < start;
  }

  // The vertex whose move gains most, -1: none may move.
  int next_vertex() {
    while (!queue_.empty()) {
      const Candidate next = queue_.top();
      queue_.pop();
      if (!is_free(next.vertex) || gain(next.vertex) != next.gain) continue;
      if (split_.weight[side_] + graph_.weight[next.vertex] <= most_) return next.vertex;
    }
    return -1;
  }

  void set_side(int v, std::int8_t side) {
    log_.emplace_back(v, split_.side[v]);
    split_.weight[split_.side[v]] -= graph_.weight[v];
    split_.weight[side] += graph_.weight[v];
    split_.side[v] = side;
  }

  void move(int v) {
    set_side(v, static_cast<std::int8_t>(side_));
    pass_of_[v] = pass_;
    for (int p = graph_.begin[v]; p < graph_.begin[v + 1]; ++p) {
      if (split_.side[graph_.neighbor[p]] == 1 - side_) pull_in(graph_.neighbor[p]);
    }
  }

  void pull_in(int u) {
    set_side(u, kSeparator);
    split_.separator.push_back(u);
    enter(u);
    for (int p = graph_.begin[u]; p < graph_.begin[u + 1]; ++p) {
      const int x = graph_.neighbor[p];
      if (split_.side[x] != kSeparator) continue;
      beyond_[x] -= graph_.weight[u];
      if (is_free(x)) queue_.push({gain(x), x});
    }
  }

  void undo(std::size_t end) {
    while (log_.size() > end) {
      const auto [v, side] = log_.back();
      log_.pop_back();
      split_.weight[split_.side[v]] -= graph_.weight[v];
      split_.weight[side] += graph_.weight[v];
      split_.side[v] = side;
    }
  }

  void collect() {
    auto& list = split_.separator;
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    list.erase(std::remove_if(list.begin(), list.end(), [&](int v) { return split_.side[v] != kSeparator; }),
               list.end());
  }

  const WeightedGraph& graph_;
  Split& split_;
  const std::int64_t most_;
  int pass_ = 1;
  std::vector<std::int32_t> pass_of_;  // (n) the pass that moved a vertex last
  const int patience_ = std::clamp(graph_.size() / 8, 20, kPatience);
  int side_ = 0;  // that the vertices of this pass move to
  std::unique_ptr<std::int64_t[]>
      beyond_;  // (n) of the separator's: weight of the neighbours on the other side
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<std::int32_t, std::int8_t>> log_;  // vertices and where they were
};

// Side 0 grows from `start` to half of the weight, always by the vertex that cuts the least weight of edges;
// component after component.
class Growth {
 public:
  explicit Growth(const WeightedGraph& graph) : graph_(graph), cut_(graph.size(), 0) {
    for (int v = 0; v < graph.size(); ++v) {
      for (int p = graph.begin[v]; p < graph.begin[v + 1]; ++p) cut_[v] += graph.edge_weight[p];
    }
  }

  Split from(int start, std::int64_t half) {
    const int n = graph_.size();
    split_.side.assign(n, 1);
    std::int64_t weight = 0;
    for (int other = start; weight < half;) {
      while (!frontier_.empty() && !is_current(frontier_.top())) frontier_.pop();
      if (frontier_.empty()) {  // the first vertex, and one in each further component
        while (split_.side[other] == 0) other = (other + 1) % n;
        take(other);
        weight += graph_.weight[other];
      } else {
        const int v = frontier_.top().second;
        take(v);
        weight += graph_.weight[v];
      }
    }
    separate();
    return std::move(split_);
  }

 private:
  using Entry = std::pair<std::int64_t, std::int32_t>;  // less cut weight, vertex

  bool is_current(const Entry& entry) const {
    return split_.side[entry.second] == 1 && -cut_[entry.second] == entry.first;
  }

  void take(int v) {
    split_.side[v] = 0;
    for (int p = graph_.begin[v]; p < graph_.begin[v + 1]; ++p) {
      const int u = graph_.neighbor[p];
      if (split_.side[u] == 0) continue;
      cut_[u] -= 2 * graph_.edge_weight[p];
      frontier_.emplace(-cut_[u], u);
    }
  }

  // Neighbours of side 0.
  void separate() {
    for (int v = 0; v < graph_.size(); ++v) {
      for (int p = graph_.begin[v]; p < graph_.begin[v + 1] && split_.side[v] == 1; ++p) {
        if (split_.side[graph_.neighbor[p]] == 0) split_.side[v] = kSeparator;
      }
      split_.weight[split_.side[v]] += graph_.weight[v];
      if (split_.side[v] == kSeparator) split_.separator.push_back(v);
    }
  }

  const WeightedGraph& graph_;
  Split split_;
  std::vector<std::int64_t> cut_;  // (n) what taking a vertex adds to the weight of the cut
  std::priority_queue<Entry> frontier_;
};

// Cuts from several starts.
std::vector<Split> grown(const WeightedGraph& graph, int most_starts, std::int64_t half) {
  std::vector<Split> splits;
  const int n = graph.size(), starts = std::min(n, most_starts);
  for (int k = 0; k < starts; ++k) {
    const int start = static_cast<int>((static_cast<std::int64_t>(n) * (2 * k + 1)) / (2 * starts));
    splits.push_back(Growth(graph).from(start, half));
  }
  return splits;
}

Split projected(const Split& coarse, const std::vector<std::int32_t>& coarse_of, const ChunkLoop& loop) {
  Split split;
  const int n = static_cast<int>(coarse_of.size());
  std::copy(coarse.weight, coarse.weight + 3, split.weight);
  split.side.resize(n);
  std::vector<std::vector<std::int32_t>> found(num_chunks(n));
  loop(n, [&](int first, int last) {
    for (int v = first; v < last; ++v) {
      split.side[v] = coarse.side[coarse_of[v]];
      if (split.side[v] == kSeparator) found[first / kChunk].push_back(v);
    }
  });
  for (const auto& part : found) split.separator.insert(split.separator.end(), part.begin(), part.end());
  return split;
}

}  // namespace

Split split_in_two(const WeightedGraph& graph, const ChunkLoop& loop) {
  const std::int64_t total = total_weight(graph), most = static_cast<std::int64_t>(kMostShare * total);
  const std::int64_t most_cluster = std::max<std::int64_t>(1, 3 * total / (2 * kCoarsest));
  std::vector<std::unique_ptr<CoarseGraph>> levels;
  const WeightedGraph* coarsest = &graph;
  while (coarsest->size() > kCoarsest) {
    const int members = coarsest->size() > kLargeGraph ? 4 : 2;
    auto next = std::make_unique<CoarseGraph>(coarsen(*coarsest, members, most_cluster, loop));
    if (next->graph.size() > 0.95 * coarsest->size()) break;
    levels.push_back(std::move(next));
    coarsest = &levels.back()->graph;
  }
  const int starts = graph.size() < kManyVertices ? kStarts : 2 * kStarts;
  std::vector<Split> splits = grown(*coarsest, starts, total / 2);
  const auto refine = [&](const WeightedGraph& level, std::size_t most_kept) {
    for (Split& split : splits) Refinement(level, split, most).run(kPasses);
    std::stable_sort(splits.begin(), splits.end(),
                     [&](const Split& a, const Split& b) { return score_of(a, most) < score_of(b, most); });
    splits.resize(std::min(splits.size(), most_kept));
  };
  std::size_t kept = starts / 2;  // halved from graph to graph
  refine(*coarsest, levels.empty() ? 1 : kept);
  for (std::size_t k = levels.size(); k-- > 0;) {
    for (Split& split : splits) split = projected(split, levels[k]->coarse_of, loop);
    kept = std::max<std::size_t>(1, kept / 2);
    refine(k == 0 ? graph : levels[k - 1]->graph, k == 0 ? 1 : kept);
  }
  return std::move(splits[0]);
}

}  // namespace graphopt
