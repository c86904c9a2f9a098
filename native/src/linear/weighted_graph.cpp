#include "linear/weighted_graph.h"

#include <algorithm>
#include <numeric>

#include "linear/items.h"

namespace graphopt {
namespace {

// Clusters of the vertices first .. last: leader[v] is the first vertex of v's cluster, next[v] another
// member or -1; the chain starts at the leader.
class ChunkClusters {
 public:
  ChunkClusters(const WeightedGraph& graph, int first, int last, std::int32_t* leader, std::int32_t* next)
      : graph_(graph), first_(first), last_(last), leader_(leader), next_(next) {}

  void find(int members, std::int64_t most_weight) {
    const int size = last_ - first_, stride = stride_of(size);
    for (int k = 0, at = 0; k < size; ++k, at = (at + stride) % size) {
      if (leader_[first_ + at] == -1) grow(first_ + at, members, most_weight);
    }
    join_single(most_weight);
  }

 private:
  // About 0.618 of the size, without a common divisor: visits are spread, so that clusters of a lattice do
  // not all lie in the same direction.
  static int stride_of(int size) {
    int stride = std::max(1, static_cast<int>(0.6180339887 * size));
    while (std::gcd(stride, size) != 1) ++stride;
    return stride;
  }

  void grow(int v, int members, std::int64_t most_weight) {
    leader_[v] = v;
    std::int64_t weight = graph_.weight[v];
    for (int k = 1, tip = v; k < members; ++k) {
      const int best = heaviest(tip, most_weight - weight);
      if (best == -1) return;
      add(v, best);
      weight += graph_.weight[best];
      tip = best;
    }
  }

  // The free neighbour in this chunk behind the heaviest edge, the lightest of them.
  int heaviest(int v, std::int64_t most_weight) const {
    int best = -1, best_edge = 0;
    for (int p = graph_.begin[v]; p < graph_.begin[v + 1]; ++p) {
      const int u = graph_.neighbor[p], edge = graph_.edge_weight[p];
      if (u < first_ || u >= last_ || leader_[u] != -1 || graph_.weight[u] > most_weight) continue;
      if (edge > best_edge || (edge == best_edge && graph_.weight[u] < graph_.weight[best])) {
        best = u;
        best_edge = edge;
      }
    }
    return best;
  }

  // Vertices that found nobody, and share a neighbour: the ends of stars.
  void join_single(std::int64_t most_weight) {
    std::vector<std::int32_t> waiting;
    for (int v = first_; v < last_; ++v) {
      if (leader_[v] != v || next_[v] != -1 || graph_.begin[v] == graph_.begin[v + 1]) continue;
      const int shared = graph_.neighbor[graph_.begin[v]];
      if (shared < first_ || shared >= last_) continue;
      if (waiting.empty()) waiting.assign(last_ - first_, -1);
      std::int32_t& other = waiting[shared - first_];
      if (other == -1 || graph_.weight[other] + static_cast<std::int64_t>(graph_.weight[v]) > most_weight) {
        other = v;
      } else {
        add(other, v);
        other = -1;
      }
    }
  }

  void add(int leader, int v) {
    leader_[v] = leader;
    next_[v] = next_[leader];
    next_[leader] = v;
  }

  const WeightedGraph& graph_;
  const int first_, last_;
  std::int32_t* const leader_;
  std::int32_t* const next_;
};

// Adjacency of the clusters of one chunk.
struct CoarseRows {
  std::vector<std::int32_t> length, neighbor, edge_weight, weight;
};

CoarseRows rows_of(const WeightedGraph& fine, const std::vector<std::int32_t>& coarse_of,
                   const std::vector<std::int32_t>& leader, const std::vector<std::int32_t>& next, int first,
                   int last) {
  CoarseRows rows;
  std::vector<std::uint64_t> found;  // neighbour << 32 | weight of the edge
  for (int v = first; v < last; ++v) {
    if (leader[v] != v) continue;
    found.clear();
    std::int32_t weight = 0;
    for (int member = v; member != -1; member = next[member]) {
      weight += fine.weight[member];
      for (int p = fine.begin[member]; p < fine.begin[member + 1]; ++p) {
        const std::uint64_t other = static_cast<std::uint32_t>(coarse_of[fine.neighbor[p]]);
        found.push_back(other << 32 | static_cast<std::uint32_t>(fine.edge_weight[p]));
      }
    }
    std::sort(found.begin(), found.end());
    const std::size_t before = rows.neighbor.size();
    for (const std::uint64_t entry : found) {
      const std::int32_t other = static_cast<std::int32_t>(entry >> 32);
      if (other == coarse_of[v]) continue;
      if (rows.neighbor.size() == before || rows.neighbor.back() != other) {
        rows.neighbor.push_back(other);
        rows.edge_weight.push_back(0);
      }
      rows.edge_weight.back() += static_cast<std::int32_t>(entry & 0xffffffff);
    }
    rows.length.push_back(static_cast<std::int32_t>(rows.neighbor.size() - before));
    rows.weight.push_back(weight);
  }
  return rows;
}

WeightedGraph joined(const std::vector<CoarseRows>& parts) {
  std::size_t vertices = 0, entries = 0;
  for (const CoarseRows& part : parts) {
    vertices += part.length.size();
    entries += part.neighbor.size();
  }
  WeightedGraph graph;
  graph.begin.reserve(vertices + 1);
  graph.weight.reserve(vertices);
  graph.neighbor.reserve(entries);
  graph.edge_weight.reserve(entries);
  for (const CoarseRows& part : parts) {
    for (const std::int32_t length : part.length) graph.begin.push_back(graph.begin.back() + length);
    graph.weight.insert(graph.weight.end(), part.weight.begin(), part.weight.end());
    graph.neighbor.insert(graph.neighbor.end(), part.neighbor.begin(), part.neighbor.end());
    graph.edge_weight.insert(graph.edge_weight.end(), part.edge_weight.begin(), part.edge_weight.end());
  }
  return graph;
}

}  // namespace

void chunks_alone(int n, const std::function<void(int, int)>& body) {
  for (int first = 0; first < n; first += kChunk) body(first, std::min(n, first + kChunk));
}

void chunks_shared(int n, const std::function<void(int, int)>& body) {
  const auto task = [&](int chunk) { body(chunk * kChunk, std::min(n, (chunk + 1) * kChunk)); };
  for_each_item(num_chunks(n), task);
}

CoarseGraph coarsen(const WeightedGraph& fine, int members, std::int64_t most_weight, const ChunkLoop& loop) {
  const int n = fine.size();
  std::vector<std::int32_t> leader(n, -1), next(n, -1), count(num_chunks(n) + 1, 0);
  CoarseGraph coarse;
  coarse.coarse_of.resize(n);
  loop(n, [&](int first, int last) {
    ChunkClusters(fine, first, last, leader.data(), next.data()).find(members, most_weight);
    int clusters = 0;
    for (int v = first; v < last; ++v) {
      if (leader[v] == v) coarse.coarse_of[v] = clusters++;
    }
    for (int v = first; v < last; ++v) coarse.coarse_of[v] = coarse.coarse_of[leader[v]];
    count[first / kChunk + 1] = clusters;
  });
  std::partial_sum(count.begin(), count.end(), count.begin());
  loop(n, [&](int first, int last) {
    for (int v = first; v < last; ++v) coarse.coarse_of[v] += count[first / kChunk];
  });
  std::vector<CoarseRows> parts(num_chunks(n));
  loop(n, [&](int first, int last) {
    parts[first / kChunk] = rows_of(fine, coarse.coarse_of, leader, next, first, last);
  });
  coarse.graph = joined(parts);
  return coarse;
}

}  // namespace graphopt
