// Many small problems at once: points that move alone while everything else stays.
#pragma once

#include <cstdint>
#include <vector>

#include "edges/chi2.h"

namespace graphopt::edges {

// Edges of one kind, sorted by their point: those of point k are first[k] .. first[k + 1] - 1.
struct PointEdges {
  EdgePrograms programs;  // `chi2`: -> rho, then H and b
  EdgeInputs inputs;      // the table of the points' slot is what moves
  const std::uint32_t* first = nullptr;
  int h = 0, b = 0;  // outputs where the points' block of H (upper triangle by columns) and their b begin
};

// Of each point, at its place.
struct PointSystem {
  double chi2 = 0.0;  // infinite where it is not finite
  double h[6] = {};   // upper triangle by columns
  double b[3] = {};
};

struct PointRounds {
  int rounds = 0, iterations = 0;  // 0 rounds: points stay
  const double* bound = nullptr;  // (num_points,): those with a larger chi2 take part in the first round only
};

// Each point takes its own damped Gauss-Newton steps, (H + lambda diag(H)) dx = b, accepted or rejected one
// by one. A round begins with the same lambda; after it only points go on that still fall. No point ends
// higher. points (num_points, 3) move; falls[k]: the last step still lowered chi2, or promised to.
void minimise_points(const std::vector<PointEdges>& edges, double* points, std::int64_t num_points,
                     const PointRounds& rounds, PointSystem* systems, bool* falls);

}  // namespace graphopt::edges
