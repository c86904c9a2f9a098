// Nested dissection on all cores: separators are ordered last, what they separate is independent.
//
// `Dissection` holds the pieces of a block graph and cuts them in two until they are small enough. The order
// within a piece is minimum degree's. Pieces are the same for any number of threads. Reference: George,
// Nested dissection of a regular finite element mesh, SIAM Journal on Numerical Analysis 1973.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/ordering.h"
#include "linear/weighted_graph.h"

namespace graphopt {

class Dissection {
 public:
  explicit Dissection(const BlockGraph& graph);

  // Cut every piece of more than `most_vertices` blocks.
  void cut(int most_vertices);

  // Order of elimination: minimum degree within pieces.
  std::vector<std::int32_t> order() const;

 private:
  struct Piece {
    WeightedGraph graph;
    std::vector<std::int32_t> block;  // of the graph's vertices
    int first = 0;                    // where its range of the order begins
    bool is_whole = false;            // no separator was found
  };

  static void cut_piece(const Piece& piece, const ChunkLoop& loop, std::vector<Piece>& parts,
                        std::vector<std::int32_t>& order);

  std::vector<Piece> pieces_;
  std::vector<std::int32_t> order_;  // separators in place, pieces not yet
};

// Minimum degree order of a graph (Amestoy, Davis and Duff 1996): vertices.
std::vector<std::int32_t> minimum_degree(const std::int32_t* begin, const std::int32_t* neighbor, int n);

}  // namespace graphopt
