// Optimizes a file: solve_file IN OUT [TYPES [DEVICE]]
//
// IN is a .g2o, BAL or graph.txt file, OUT a .g2o file if it ends so, else a graph.txt. TYPES is the
// types.txt of `graphopt export`, or "" for the types that the library carries; DEVICE is cpu or vulkan,
// which needs types with kernels: graphopt export builtin -o DIR --device vulkan
#include <cstdio>
#include <graphopt/graphopt.hpp>

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: %s IN OUT [TYPES [DEVICE]]\n", argv[0]);
    return 2;
  }
  try {
    graphopt::Graph graph(argc > 3 ? argv[3] : "");
    graph.read(argv[1]);
    graphopt_options options = graphopt::default_options();
    options.device = argc > 4 ? argv[4] : "cpu";
    const graphopt_summary summary = graph.optimize(options);
    graph.write(argv[2]);
    std::printf("chi2 %.17g -> %.17g in %d iterations, %.3f s on %s\n", summary.initial_chi2,
                summary.final_chi2, summary.num_iterations, summary.seconds, summary.device);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
