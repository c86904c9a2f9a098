// How steps at different estimates belong together.
#pragma once

#include <Eigen/Dense>

#include "online/problem.h"

namespace graphopt::online {

// M with  (from oplus d) oplus M e = from oplus (d + e)  for small e.
Eigen::MatrixXd step_derivative(const VertexKind& kind, const double* from, const double* d);

}  // namespace graphopt::online
