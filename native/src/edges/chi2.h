// chi2 of edges, summed by one of their vertices: one pass over arrays as the graph has them.
#pragma once

#include <cstdint>
#include <vector>

#include "edges/columns.h"
#include "vm/program.h"

namespace graphopt::edges {

// Rows of numbers that edges refer to.
struct Table {
  const double* data = nullptr;
  int columns = 0;
};

struct EdgePrograms {
  const vm::Program* chi2 = nullptr;
  const vm::Program* kernel = nullptr;  // null: none
};

// The numbers that the programs read, in this order.
struct EdgeInputs {
  std::vector<Table> vertices, parameters;       // per slot
  const std::int32_t* vertex_rows = nullptr;     // (num_edges, number of vertex slots)
  const std::int32_t* parameter_rows = nullptr;  // (num_edges, number of parameter slots)
  std::vector<Columns<double>> data;             // measurement, information; with a kernel last its width
  int moving = -1;                               // vertex slot whose rows a caller may give instead
};

// out[d] = sum of robustified chi2 of the edges order[first[d]] .. order[first[d + 1] - 1], added up in this
// order.
void sum_chi2(const EdgePrograms& programs, const EdgeInputs& inputs, const std::uint32_t* order,
              const std::uint32_t* first, std::int64_t num_destinations, double* out);

// out (num_edges, number of outputs): what a program without robust kernel returns for edges 0, 1, ...
void edge_outputs(const vm::Program& program, const EdgeInputs& inputs, std::int64_t num_edges, double* out);

// Destinations d with sums[d] above bound times their number of edges, first[d + 1] - first[d], or not a
// number, in order; those without edges are left out.
std::vector<std::int64_t> large_sums(const double* sums, const std::uint32_t* first,
                                     std::int64_t num_destinations, double bound);

}  // namespace graphopt::edges
