// The ray on which an image sees a point, from the residual of the edge alone.
#pragma once

#include <cstdint>
#include <vector>

#include "edges/points.h"

namespace graphopt::edges {

// One per edge; numbers of rays that are not known are 0.
struct Rays {
  double *centre = nullptr, *direction = nullptr;  // (m, 3)
  double* distance = nullptr;                      // (m,) from the centre to where the start was
  bool* known = nullptr;                           // (m,)
};

// As graphopt/strategies/viewing_rays.py says. Edge k has its own point k; points (m, 3), the starts, move.
void viewing_rays(const PointEdges& edges, std::int64_t num_edges, double* points, double spread,
                  const Rays& out);

// Rays of some edges, and the number of the point that each of them sees.
struct SeenRays {
  const double *centre = nullptr, *direction = nullptr, *distance = nullptr;
  const bool* known = nullptr;
  const std::int64_t* point = nullptr;
  std::int64_t size = 0;
};

// Starts of each point, (1 + number of fractions, num_points, 3): where its rays meet, not a number with
// fewer than two, and at fractions of their mean distance along the mean ray.
void candidate_places(const std::vector<SeenRays>& rays, std::int64_t num_points,
                      const std::vector<double>& fractions, double* out);

// front[k]: place k of point k mod num_points is on the front side of all cameras whose ray is known.
void mark_front(const std::vector<SeenRays>& rays, std::int64_t num_points, const double* places,
                std::int64_t num_places, bool* front);

}  // namespace graphopt::edges
