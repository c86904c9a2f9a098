// Undirected graphs with weights, as nested dissection coarsens and cuts them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace graphopt {

// Symmetric adjacency without the diagonal, both directions.
struct WeightedGraph {
  int size() const { return static_cast<int>(weight.size()); }

  std::vector<std::int32_t> begin{0};     // (n + 1)
  std::vector<std::int32_t> neighbor;     // (2 * edges)
  std::vector<std::int32_t> edge_weight;  // (2 * edges)
  std::vector<std::int32_t> weight;       // (n)
};

// Calls body(first, last) for the ranges of kChunk vertices that make up 0 .. n, in any order or at once.
using ChunkLoop = std::function<void(int n, const std::function<void(int first, int last)>& body)>;
constexpr int kChunk = 1 << 14;
inline int num_chunks(int n) { return (n + kChunk - 1) / kChunk; }

// One after the other, on this thread.
void chunks_alone(int n, const std::function<void(int, int)>& body);
// Dealt out to the threads of the pool.
void chunks_shared(int n, const std::function<void(int, int)>& body);

struct CoarseGraph {
  WeightedGraph graph;
  std::vector<std::int32_t> coarse_of;  // (fine vertices)
};

// Clusters of at most `members` neighbours that weigh at most `most_weight`, joined along heavy edges within
// chunks. The same whoever runs the chunks.
CoarseGraph coarsen(const WeightedGraph& fine, int members, std::int64_t most_weight, const ChunkLoop& loop);

}  // namespace graphopt
