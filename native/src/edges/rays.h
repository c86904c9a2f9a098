// The ray on which an image sees a point, from the residual of the edge alone.
#pragma once

#include <cstdint>

#include "edges/points.h"

namespace graphopt::edges {

// One per edge; numbers of rays that are not known are 0.
struct Rays {
  double *centre = nullptr, *direction = nullptr;  // (m, 3)
  double* distance = nullptr;                      // (m,) from the centre to where the start was
  bool* known = nullptr;                           // (m,)
};

// As graphopt/solver/viewing_rays.py says. Edge k has its own point k; points (m, 3), the starts, move.
void viewing_rays(const PointEdges& edges, std::int64_t num_edges, double* points, double spread,
                  const Rays& out);

}  // namespace graphopt::edges
