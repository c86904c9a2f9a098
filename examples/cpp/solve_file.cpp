// Optimizes a .g2o file: solve_file IN.g2o OUT
//
// OUT is a graph.txt; its types are those that the library carries. With a third argument, the types.txt of
// `graphopt export`, IN may be a graph.txt of any types.
#include <graphopt/graphopt.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s IN OUT [TYPES]\n", argv[0]);
    return 2;
  }
  graphopt_graph* graph = nullptr;
  graphopt_summary summary;
  const bool solved = graphopt_graph_new(argc == 4 ? argv[3] : nullptr, &graph) == GRAPHOPT_OK &&
                      graphopt_graph_read(graph, argv[1]) == GRAPHOPT_OK &&
                      graphopt_optimize(graph, nullptr, &summary) == GRAPHOPT_OK &&
                      graphopt_graph_write(graph, argv[2]) == GRAPHOPT_OK;
  if (solved)
    std::printf("chi2 %.17g -> %.17g in %d iterations, %.3f s\n", summary.initial_chi2, summary.final_chi2,
                summary.num_iterations, summary.seconds);
  else
    std::fprintf(stderr, "%s\n", graphopt_last_error());
  graphopt_graph_free(graph);
  return solved ? 0 : 1;
}
