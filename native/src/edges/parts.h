// Parts of a graph: which vertices edges connect, found by all threads at once.
//
// A union-find whose roots only ever move to smaller numbers (Anderson and Woll, Wait-free parallel
// algorithms for the union-find problem, 1991), so that the answer does not depend on the order of the edges
// or of the threads.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::edges {

// Edges of one set: the vertex of edge i in slot s has the number first[s] + rows[i * arity + s].
struct EdgeRows {
  const std::int32_t* rows;
  std::int64_t num_edges;
  std::vector<std::int64_t> first;  // (arity,)
};

// label (num_vertices,): the part of each taken vertex, -1 of the others; parts are numbered by their first
// vertex. Returns (parts,): an edge of the part has one vertex only, or one that is not taken.
std::vector<bool> connected_parts(const bool* taken, std::int64_t num_vertices,
                                  const std::vector<EdgeRows>& edges, std::int64_t* label);

// keep[i]: an edge has a vertex that is not fixed; fixed[s] by row, of slot s. Returns how many.
std::int64_t edges_with_free_vertex(const std::int32_t* rows, std::int64_t num_edges,
                                    const std::vector<const bool*>& fixed, bool* keep);

}  // namespace graphopt::edges
