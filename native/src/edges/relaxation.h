// The convex relaxation of graphopt/strategies/relaxation.py: its weights, equations, cost, and proof.
#pragma once

#include <cstdint>

#include "linear/block_pattern.h"

namespace graphopt::edges {

// Edges from poses to poses, or to points. Numbers of a pose in d dimensions: its translation (d), and its
// rotation (d, d) row by row; of a point: its place (d).
struct RelaxedEdges {
  std::int64_t size = 0;
  int dim = 0;                             // d
  bool to_points = false;                  // where the second vertices and the measurements are places
  const double* measurement = nullptr;     // (m, numbers)
  const double* weights = nullptr;         // (m, 2) of translation and rotation
  const std::int32_t* vertices = nullptr;  // (m, 2) rows
  const double* numbers[2] = {};           // by slot and row
};

// What the unknowns are: all rows of the poses and the points, or the places alone, with the given rotations.
enum class Unknowns { kAll, kPlaces };

// (m, 2) harmonic means of the eigenvalues of the diagonal blocks of information matrices (n, k, k), those of
// the first d rows and the rest; 0 where none is positive. rows (m,) of the matrices.
void relaxed_weights(const double* information, int k, const std::int64_t* rows, std::int64_t size, int dim,
                     double* out);

// Adds the edges to values and b (dim of the pattern, d). blocks: by slot and row, -1: held at its numbers.
void add_relaxed(const RelaxedEdges& edges, const std::int64_t* const (&blocks)[2], Unknowns unknowns,
                 const BlockPattern& pattern, double* values, double* b);

// Sum of w |x_j - C' x_i|^2 at the numbers, over all unknowns.
double relaxed_cost(const RelaxedEdges& edges);

// With the multipliers L of the rotations in x (dim, d): values becomes M - L, residual (M - L) x - b.
void subtract_multipliers(const BlockPattern& pattern, int dim, const double* x, const double* b,
                          double* values, double* residual);

// (n, d, d) rotations nearest to (n, d, d) matrices in the Frobenius norm.
void nearest_rotations(const double* matrices, std::int64_t size, int dim, double* out);

}  // namespace graphopt::edges
