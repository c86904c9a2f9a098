// Rows of numbers of edges, as their programs read them: measurement, then entries of the information matrix.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::online {

struct EdgeNumbers {
  std::int64_t count = 0;
  const double* measurements = nullptr;  // (count, measurement_dim), or one row
  std::int64_t measurement_dim = 0;
  bool shares_measurement = false;
  const double* information = nullptr;  // (count, dim, dim), or one matrix; null: the identity
  std::int64_t dim = 0;
  bool shares_information = false;
};

// Whether all numbers are finite and all matrices symmetric to the bit.
bool is_plain(const EdgeNumbers& numbers);
// Whether all matrices are diagonal.
bool is_diagonal(const EdgeNumbers& numbers);
// Numbers of a row.
std::int64_t row_size(const EdgeNumbers& numbers, bool diagonal);
// Diagonals, or upper triangles row by row.
void pack(const EdgeNumbers& numbers, bool diagonal, double* rows);

// Whether quaternions, columns `first` to `first` + 3 of rows of `dim` numbers, have length 1 within 1e-3.
bool are_nearly_unit(const double* rows, std::int64_t count, std::int64_t dim, std::int64_t first);

}  // namespace graphopt::online
