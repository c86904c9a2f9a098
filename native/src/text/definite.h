// Which symmetric matrices are positive definite? Asked once per edge of a file, so it must cost less than
// reading the edge.
#pragma once

#include <cstdint>

namespace graphopt::text {

// For each of `count` symmetric matrices (dim x dim, row-major): does Cholesky run to the end with every
// pivot above `relative_tolerance` times its diagonal entry? `scratch` holds dim * dim doubles.
void positive_definite(const double* matrices, int64_t count, int64_t dim, double relative_tolerance,
                       double* scratch, bool* out);

}  // namespace graphopt::text
