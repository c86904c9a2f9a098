// Fits a circle to points with a residual that was written in Python (circle.py): fit_circle TYPES
#include <graphopt/graphopt.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s TYPES\n", argv[0]);
    return 2;
  }
  const int num_points = 100;
  std::vector<double> points;
  for (int k = 0; k < num_points; ++k) {
    const double angle = 0.05 * k, radius = k % 25 == 0 ? 9.0 : 2.0;  // some are wrong
    points.push_back(3.0 + radius * std::cos(angle));
    points.push_back(-1.0 + radius * std::sin(angle));
  }
  const std::int64_t circle = 0;
  const double start[] = {2.0, 0.0, 1.0};
  const std::vector<std::int64_t> vertices(num_points, circle);

  graphopt_graph* graph = nullptr;
  graphopt_summary summary;
  double found[3];
  const bool solved =
      graphopt_graph_new(argv[1], &graph) == GRAPHOPT_OK &&
      graphopt_add_vertices(graph, "VERTEX_CIRCLE", &circle, start, 1) == GRAPHOPT_OK &&
      graphopt_add_edges(graph, "EDGE_POINT_ON_CIRCLE", vertices.data(), nullptr, points.data(), nullptr,
                         "Huber", 0.01, 0, num_points) == GRAPHOPT_OK &&
      graphopt_optimize(graph, nullptr, &summary) == GRAPHOPT_OK &&
      graphopt_get_estimates(graph, "VERTEX_CIRCLE", nullptr, found, 1) == GRAPHOPT_OK;
  if (solved)
    std::printf("centre %.6f %.6f, radius %.6f after %d iterations\n", found[0], found[1], found[2],
                summary.num_iterations);
  else
    std::fprintf(stderr, "%s\n", graphopt_last_error());
  graphopt_graph_free(graph);
  return solved ? 0 : 1;
}
