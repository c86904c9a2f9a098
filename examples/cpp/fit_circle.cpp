// Fits a circle to points with a residual that was written in Python (circle.py): fit_circle TYPES [DEVICE]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <graphopt/graphopt.hpp>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s TYPES [DEVICE]\n", argv[0]);
    return 2;
  }
  const int num_points = 100;
  graphopt::Edges points;
  points.kernel = "Huber";
  points.kernel_width = 0.01;
  for (int k = 0; k < num_points; ++k) {
    const double angle = 0.05 * k, radius = k % 25 == 0 ? 9.0 : 2.0;  // some are wrong
    points.vertices.push_back(0);
    points.measurements.push_back(3.0 + radius * std::cos(angle));
    points.measurements.push_back(-1.0 + radius * std::sin(angle));
  }
  try {
    graphopt::Graph graph(argv[1]);
    graph.add_vertices("VERTEX_CIRCLE", {0}, {2.0, 0.0, 1.0});
    graph.add_edges("EDGE_POINT_ON_CIRCLE", points, num_points);
    graphopt_options options = graphopt::default_options();
    options.device = argc > 2 ? argv[2] : "cpu";
    const graphopt_summary summary = graph.optimize(options);
    const std::vector<double> found = graph.estimates("VERTEX_CIRCLE");
    std::printf("centre %.6f %.6f, radius %.6f after %d iterations on %s\n", found[0], found[1], found[2],
                summary.num_iterations, summary.device);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
