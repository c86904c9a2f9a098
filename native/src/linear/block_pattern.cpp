#include "linear/block_pattern.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "linear/errors.h"

namespace graphopt {
namespace {

std::string at(const char* array, std::int64_t index) {
  return std::string("BlockPattern: ") + array + "[" + std::to_string(index) + "]";
}

}  // namespace

BlockPattern::BlockPattern(std::vector<std::int32_t> dims, std::vector<std::int64_t> col_ptr,
                           std::vector<std::int32_t> row_idx)
    : dims_(std::move(dims)), col_ptr_(std::move(col_ptr)), row_idx_(std::move(row_idx)) {
  check();
  offsets_.assign(dims_.size() + 1, 0);
  for (std::size_t i = 0; i < dims_.size(); ++i) offsets_[i + 1] = offsets_[i] + dims_[i];
  if (offsets_.back() > std::numeric_limits<std::int32_t>::max()) {
    throw LinearShapeError("BlockPattern: the matrix has " + std::to_string(offsets_.back()) +
                           " scalar rows, at most 2^31 - 1 are supported.");
  }
  value_offsets_.assign(row_idx_.size() + 1, 0);
  for (int col = 0; col < num_blocks(); ++col) {
    for (std::int64_t k = col_ptr_[col]; k < col_ptr_[col + 1]; ++k) {
      value_offsets_[k + 1] = value_offsets_[k] + static_cast<std::int64_t>(dims_[row_idx_[k]]) * dims_[col];
    }
  }
}

void BlockPattern::check() const {
  const std::int64_t nb = static_cast<std::int64_t>(dims_.size());
  if (static_cast<std::int64_t>(col_ptr_.size()) != nb + 1) {
    throw LinearShapeError("BlockPattern: col_ptr has " + std::to_string(col_ptr_.size()) +
                           " entries, expected " + std::to_string(nb + 1) + " (one more than dims).");
  }
  if (col_ptr_.front() != 0) throw LinearShapeError(at("col_ptr", 0) + " must be 0.");
  if (col_ptr_.back() != static_cast<std::int64_t>(row_idx_.size())) {
    throw LinearShapeError("BlockPattern: col_ptr ends with " + std::to_string(col_ptr_.back()) +
                           ", but row_idx has " + std::to_string(row_idx_.size()) + " entries.");
  }
  for (std::int64_t col = 0; col < nb; ++col) {
    if (dims_[col] < 1) {
      throw LinearShapeError(at("dims", col) + " is " + std::to_string(dims_[col]) + ", must be >= 1.");
    }
    const std::int64_t begin = col_ptr_[col], end = col_ptr_[col + 1];
    if (end <= begin || end > col_ptr_.back()) {
      throw LinearShapeError(at("col_ptr", col + 1) + " leaves column " + std::to_string(col) +
                             " without its diagonal block.");
    }
    for (std::int64_t k = begin; k < end; ++k) {
      if (row_idx_[k] < 0 || (k > begin && row_idx_[k] <= row_idx_[k - 1])) {
        throw LinearShapeError(at("row_idx", k) + " is " + std::to_string(row_idx_[k]) +
                               "; rows must ascend within column " + std::to_string(col) + ".");
      }
    }
    if (row_idx_[end - 1] != col) {
      throw LinearShapeError(at("row_idx", end - 1) + " is " + std::to_string(row_idx_[end - 1]) +
                             "; the last block of column " + std::to_string(col) + " must be its diagonal.");
    }
  }
}

std::vector<std::int64_t> BlockPattern::diagonal_indices() const {
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(dim()));
  for (int block = 0; block < num_blocks(); ++block) {
    const std::int64_t first = value_offset(diagonal(block)), rows = block_dim(block);
    for (std::int64_t k = 0; k < rows; ++k) indices.push_back(first + k * (rows + 1));
  }
  return indices;
}

int BlockPattern::block_of(std::int64_t scalar_row) const {
  return static_cast<int>(std::upper_bound(offsets_.begin(), offsets_.end(), scalar_row) - offsets_.begin()) -
         1;
}

}  // namespace graphopt
