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
  std::int64_t num_points = 0;
  int h = 0, b = 0;  // outputs where the points' block of H (upper triangle by columns) and their b begin
};

// Of each point, at its place.
struct PointSystem {
  double chi2 = 0.0;  // infinite where it is not finite
  double h[6] = {};   // upper triangle by columns
  double b[3] = {};
};

// x of M x = y for positive definite M, its upper triangle by columns, by its factors L D L'; not finite for
// others.
inline void solve_positive(const double (&m)[6], const double (&y)[3], double (&x)[3]) {
  const double ba = m[1] / m[0], ca = m[3] / m[0];
  const double d = m[2] - m[1] * ba, e = m[4] - m[1] * ca, f = m[5] - m[3] * ca;
  const double ed = e / d;
  const double second = y[1] - ba * y[0];
  x[2] = (y[2] - ca * y[0] - ed * second) / (f - e * ed);
  x[1] = second / d - ed * x[2];
  x[0] = y[0] / m[0] - ba * x[1] - ca * x[2];
}

struct PointRounds {
  int rounds = 0, iterations = 0;  // 0 rounds: points stay
  const double* bound = nullptr;  // (num_places,): those with a larger chi2 take part in the first round only
};

// Each place takes its own damped Gauss-Newton steps, (H + lambda diag(H)) dx = b, accepted or rejected one
// by one. Place k has the edges of point k mod num_points: several starts of each point, one after the other.
// A round begins with the same lambda; after it only points go on that still fall. No place ends higher.
// places (num_places, 3), which the edges' moving slots refer to, move; falls[k]: the last step still lowered
// chi2, or promised to.
void minimise_points(const std::vector<PointEdges>& edges, std::int64_t num_points, double* places,
                     std::int64_t num_places, const PointRounds& rounds, PointSystem* systems, bool* falls);

}  // namespace graphopt::edges
