#include "online/rows.h"

#include <algorithm>
#include <cmath>

namespace graphopt::online {
namespace {

constexpr double kFewDigits = 1e-3;  // geometry/quaternion.py

std::int64_t num_matrices(const EdgeNumbers& n) {
  return n.information == nullptr ? 0 : n.shares_information ? std::min<std::int64_t>(1, n.count) : n.count;
}

bool are_finite(const double* numbers, std::int64_t size) {
  double zero = 0.0;
  for (std::int64_t i = 0; i < size; ++i) zero += numbers[i] * 0.0;
  return zero == 0.0;
}

}  // namespace

bool is_plain(const EdgeNumbers& n) {
  if (!are_finite(n.measurements, (n.shares_measurement ? 1 : n.count) * n.measurement_dim)) return false;
  const std::int64_t d = n.dim;
  for (std::int64_t k = 0; k < num_matrices(n); ++k) {
    const double* const matrix = n.information + k * d * d;
    if (!are_finite(matrix, d * d)) return false;
    for (std::int64_t i = 1; i < d; ++i)
      for (std::int64_t j = 0; j < i; ++j)
        if (matrix[i * d + j] != matrix[j * d + i]) return false;
  }
  return true;
}

bool is_diagonal(const EdgeNumbers& n) {
  const std::int64_t d = n.dim;
  for (std::int64_t k = 0; k < num_matrices(n); ++k)
    for (std::int64_t i = 0; i < d * d; ++i)
      if (i % (d + 1) != 0 && n.information[k * d * d + i] != 0.0) return false;
  return true;
}

std::int64_t row_size(const EdgeNumbers& n, bool diagonal) {
  if (n.information == nullptr) return n.measurement_dim;
  return n.measurement_dim + (diagonal ? n.dim : n.dim * (n.dim + 1) / 2);
}

void pack(const EdgeNumbers& n, bool diagonal, double* rows) {
  const std::int64_t d = n.dim;
  for (std::int64_t k = 0; k < n.count; ++k) {
    rows = std::copy_n(n.measurements + (n.shares_measurement ? 0 : k * n.measurement_dim), n.measurement_dim,
                       rows);
    if (n.information == nullptr) continue;
    const double* const matrix = n.information + (n.shares_information ? 0 : k * d * d);
    for (std::int64_t i = 0; i < d; ++i) rows = std::copy_n(matrix + i * d + i, diagonal ? 1 : d - i, rows);
  }
}

bool are_nearly_unit(const double* rows, std::int64_t count, std::int64_t dim, std::int64_t first) {
  for (std::int64_t k = 0; k < count; ++k) {
    const double* const q = rows + k * dim + first;
    const double length = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    if (!(std::abs(length - 1.0) < kFewDigits)) return false;
  }
  return true;
}

}  // namespace graphopt::online
