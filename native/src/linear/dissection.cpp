#include "linear/dissection.h"

#include <Eigen/OrderingMethods>
#include <Eigen/SparseCore>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "linear/items.h"
#include "linear/separator.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr int kSharedPiece = 4 * kChunk;  // vertices from which all threads work on one piece

// The graph of some vertices; number: (all) their new numbers, -1 for the others.
WeightedGraph induced(const WeightedGraph& graph, const std::vector<std::int32_t>& vertices,
                      const std::vector<std::int32_t>& number) {
  WeightedGraph part;
  part.begin.reserve(vertices.size() + 1);
  part.weight.reserve(vertices.size());
  for (const int v : vertices) {
    part.weight.push_back(graph.weight[v]);
    for (int p = graph.begin[v]; p < graph.begin[v + 1]; ++p) {
      const int u = number[graph.neighbor[p]];
      if (u == -1) continue;
      part.neighbor.push_back(u);
      part.edge_weight.push_back(graph.edge_weight[p]);
    }
    part.begin.push_back(static_cast<std::int32_t>(part.neighbor.size()));
  }
  return part;
}

}  // namespace

std::vector<std::int32_t> minimum_degree(const std::int32_t* begin, const std::int32_t* neighbor, int n) {
  Eigen::SparseMatrix<double, Eigen::ColMajor, int> pattern(n, n);
  pattern.resizeNonZeros(static_cast<Eigen::Index>(begin[n]) + n);
  int k = 0;
  for (int i = 0; i < n; ++i) {
    pattern.outerIndexPtr()[i] = k;
    int p = begin[i];
    for (; p < begin[i + 1] && neighbor[p] < i; ++p) pattern.innerIndexPtr()[k++] = neighbor[p];
    pattern.innerIndexPtr()[k++] = i;
    for (; p < begin[i + 1]; ++p) pattern.innerIndexPtr()[k++] = neighbor[p];
  }
  pattern.outerIndexPtr()[n] = k;
  std::fill_n(pattern.valuePtr(), k, 1.0);
  Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> permutation;
  Eigen::internal::minimum_degree_ordering(pattern, permutation);
  return std::vector<std::int32_t>(permutation.indices().data(), permutation.indices().data() + n);
}

Dissection::Dissection(const BlockGraph& graph) : order_(graph.size(), -1) {
  // Blocks that touch a large part of the graph are in every separator: they come last.
  const int n = graph.size();
  const int many = std::max(16, static_cast<int>(10.0 * std::sqrt(n)));
  Piece piece;
  std::vector<std::int32_t> number(n, -1);
  int last = n;
  for (int block = n; block-- > 0;) {
    if (graph.begin[block + 1] - graph.begin[block] > many) order_[--last] = block;
  }
  for (int block = 0; block < n; ++block) {
    if (graph.begin[block + 1] - graph.begin[block] > many) continue;
    number[block] = static_cast<std::int32_t>(piece.block.size());
    piece.block.push_back(block);
  }
  WeightedGraph& own = piece.graph;
  own.neighbor.reserve(graph.neighbor.size());
  for (const int block : piece.block) {
    own.weight.push_back(graph.weight[block]);
    for (int p = graph.begin[block]; p < graph.begin[block + 1]; ++p) {
      if (number[graph.neighbor[p]] != -1) own.neighbor.push_back(number[graph.neighbor[p]]);
    }
    own.begin.push_back(static_cast<std::int32_t>(own.neighbor.size()));
  }
  own.edge_weight.assign(own.neighbor.size(), 1);
  pieces_.push_back(std::move(piece));
}

void Dissection::cut_piece(const Piece& piece, const ChunkLoop& loop, std::vector<Piece>& parts,
                           std::vector<std::int32_t>& order) {
  const int n = piece.graph.size();
  const Split split = split_in_two(piece.graph, loop);
  std::vector<std::int32_t> members[2];
  std::vector<std::int32_t> number(n, -1);
  for (int v = 0; v < n; ++v) {
    if (split.side[v] == kSeparator) continue;
    auto& own = members[split.side[v]];
    number[v] = static_cast<std::int32_t>(own.size());
    own.push_back(v);
  }
  int first = piece.first;
  for (const auto& own : members) {
    Piece part;
    part.graph = induced(piece.graph, own, number);
    for (const int v : own) part.block.push_back(piece.block[v]);
    part.first = first;
    first += static_cast<int>(own.size());
    parts.push_back(std::move(part));
  }
  for (const int v : split.separator) order[first++] = piece.block[v];
}

void Dissection::cut(int most_vertices) {
  std::vector<Piece> done;
  while (!pieces_.empty()) {
    std::vector<Piece> shared, own;
    for (Piece& piece : pieces_) {
      const int n = piece.graph.size();
      (n <= most_vertices ? done : n >= kSharedPiece ? shared : own).push_back(std::move(piece));
    }
    pieces_.clear();
    for (const Piece& piece : shared) {
      cut_piece(piece, chunks_shared, pieces_, order_);
      throw_if_stopped();
    }
    std::stable_sort(own.begin(), own.end(),
                     [](const Piece& a, const Piece& b) { return a.graph.size() > b.graph.size(); });
    std::vector<std::vector<Piece>> parts(own.size());
    for_each_item(static_cast<int>(own.size()), [&](int k) {
      if (stop_requested()) return;
      cut_piece(own[k], chunks_alone, parts[k], order_);
      own[k] = Piece{};
    });
    throw_if_stopped();
    for (auto& two : parts) {
      for (Piece& piece : two) pieces_.push_back(std::move(piece));
    }
  }
  pieces_ = std::move(done);
}

std::vector<std::int32_t> Dissection::order() const {
  std::vector<std::int32_t> order = order_;
  for_each_item(static_cast<int>(pieces_.size()), [&](int k) {
    if (stop_requested()) return;
    const Piece& piece = pieces_[k];
    const std::vector<std::int32_t> local =
        minimum_degree(piece.graph.begin.data(), piece.graph.neighbor.data(), piece.graph.size());
    for (std::size_t i = 0; i < local.size(); ++i) order[piece.first + i] = piece.block[local[i]];
  });
  throw_if_stopped();
  return order;
}

}  // namespace graphopt
