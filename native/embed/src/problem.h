// The optimization of a graph: structure, linearizer, sparse Cholesky, loop.
#pragma once

#include "graph.h"
#include "graphopt/graphopt.h"

namespace graphopt::embed {

double chi2(Graph& graph);
graphopt_summary optimize(Graph& graph, const graphopt_options& options);

}  // namespace graphopt::embed
