// What an optimization of a graph works on: active edges by rows, numbering, pattern, estimates, linearizer.
#pragma once

#include "graph.h"
#include "graphopt/graphopt.h"
#include "linear/block_pattern.h"
#include "linear/block_structure.h"
#include "vm/linearizer.h"

namespace graphopt::embed {

template <class T>
vm::View<T> view(T* data, std::int64_t rows, int columns) {
  vm::View<T> result;
  result.data = data;
  result.rows = rows;
  result.columns = columns;
  return result;
}

// Vertices by set and row.
using Flags = std::vector<std::unique_ptr<bool[]>>;

// Edges of a set that take part, by rows instead of ids.
struct Group {
  EdgeKind kind;
  std::int64_t size = 0;
  std::vector<int> vertex_sets, parameter_sets;
  std::vector<std::int32_t> vertex_rows, parameter_rows;  // (m, arity), (m, num_parameters)
  std::vector<double> measurement, information, width;
  std::vector<std::int64_t> block_offset;  // (m, pairs), -1: not optimized
  std::unique_ptr<bool[]> block_transposed;

  std::size_t arity() const { return vertex_sets.size(); }
};

// Edges of a level that have a free vertex.
std::vector<Group> select_edges(const Graph& graph, int level, const std::vector<Place>& held);

// One vertex of each part of the graph that nothing holds, as graphopt/problem/gauge.py chooses them.
std::vector<Place> gauge(const Graph& graph, const std::vector<Group>& groups);

class Problem {
 public:
  Problem(const Graph& graph, int level, const std::vector<Place>& held);
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::int64_t dim() const { return numbering.offsets.back(); }
  bool has_schur() const {
    return numbering.num_kept > 0 && numbering.num_kept < static_cast<std::int64_t>(numbering.dims.size());
  }
  std::int64_t block(const Place& place) const {
    return blocks_[static_cast<std::size_t>(place.set)][static_cast<std::size_t>(place.row)];
  }
  // Bring the estimates that have changed into the graph.
  void write_back(Graph& graph);

  Numbering numbering;
  std::shared_ptr<const BlockPattern> pattern;
  std::vector<Group> groups;
  std::vector<std::vector<double>> estimates;  // by vertex set (n, working_dim): the linearizer's
  vm::Linearizer linearizer;

 private:
  void choose_free(const Graph& graph, const std::vector<Place>& held);
  void make_structure(const Graph& graph);
  void make_linearizer(const Graph& graph);

  Flags free_, eliminated_;
  std::vector<std::vector<std::int64_t>> blocks_, offsets_;
  std::vector<std::vector<double>> known_;  // estimates that are in the graph
};

double chi2(const Graph& graph, int level);
graphopt_summary optimize(Graph& graph, const graphopt_options& options);
// Blocks of inv(H) of some vertices, one after the other.
void covariances(const Graph& graph, int level, const std::int64_t* ids, std::int64_t count, double* out);

}  // namespace graphopt::embed
