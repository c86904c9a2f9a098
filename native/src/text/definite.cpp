#include "text/definite.h"

#include <cmath>

namespace graphopt::text {
namespace {

// Row-oriented Cholesky A = L L', L into the lower triangle of `factor`.
bool factorizes(const double* a, int64_t dim, double relative_tolerance, double* factor) {
  for (int64_t i = 0; i < dim; ++i) {
    double* row_i = factor + i * dim;
    for (int64_t j = 0; j <= i; ++j) {
      const double* row_j = factor + j * dim;
      double sum = a[i * dim + j];
      for (int64_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      if (j < i) {
        row_i[j] = sum / row_j[j];
      } else {
        if (!(sum > relative_tolerance * a[i * dim + i])) return false;
        row_i[i] = std::sqrt(sum);
      }
    }
  }
  return true;
}

}  // namespace

void positive_definite(const double* matrices, int64_t count, int64_t dim, double relative_tolerance,
                       double* scratch, bool* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = factorizes(matrices + i * dim * dim, dim, relative_tolerance, scratch);
}

}  // namespace graphopt::text
