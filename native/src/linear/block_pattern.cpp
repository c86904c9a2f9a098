#include "linear/block_pattern.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "linear/errors.h"
#include "parallel/shares.h"

namespace graphopt {
namespace {

std::string at(const char* array, std::int64_t index) {
  return std::string("BlockPattern: ") + array + "[" + std::to_string(index) + "]";
}

int shares_of(std::int64_t num_stored_blocks) {
  constexpr std::int64_t kBlocksPerThread = 100'000;
  return ThreadPool::instance().threads_for(num_stored_blocks, kBlocksPerThread);
}

// Columns before the first one may be wrong.
void check_columns(const BlockPattern& pattern, std::int64_t begin_col, std::int64_t end_col) {
  const auto &dims = pattern.dims(), &row_idx = pattern.row_idx();
  const auto& col_ptr = pattern.col_ptr();
  for (std::int64_t col = begin_col; col < end_col; ++col) {
    if (dims[col] < 1) {
      throw LinearShapeError(at("dims", col) + " is " + std::to_string(dims[col]) + ", must be >= 1.");
    }
    const std::int64_t begin = col_ptr[col], end = col_ptr[col + 1];
    if (begin < 0 || end <= begin || end > col_ptr.back()) {
      throw LinearShapeError(at("col_ptr", col + 1) + " leaves column " + std::to_string(col) +
                             " without its diagonal block.");
    }
    for (std::int64_t k = begin; k < end; ++k) {
      if (row_idx[k] < 0 || (k > begin && row_idx[k] <= row_idx[k - 1])) {
        throw LinearShapeError(at("row_idx", k) + " is " + std::to_string(row_idx[k]) +
                               "; rows must ascend within column " + std::to_string(col) + ".");
      }
    }
    if (row_idx[end - 1] != col) {
      throw LinearShapeError(at("row_idx", end - 1) + " is " + std::to_string(row_idx[end - 1]) +
                             "; the last block of column " + std::to_string(col) + " must be its diagonal.");
    }
  }
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
  // Each share counts from 0, then adds what is before it.
  const int shares = shares_of(num_stored_blocks());
  std::vector<std::int64_t> before(static_cast<std::size_t>(shares) + 1, 0);
  for_each_share(num_blocks(), shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t at = 0;
    for (std::int64_t col = begin; col < end; ++col)
      for (std::int64_t k = col_ptr_[col]; k < col_ptr_[col + 1]; ++k)
        value_offsets_[k + 1] = at += static_cast<std::int64_t>(dims_[row_idx_[k]]) * dims_[col];
    before[static_cast<std::size_t>(t) + 1] = at;
  });
  for (int t = 0; t < shares; ++t) before[t + 1] += before[t];
  for_each_share(num_blocks(), shares, [&](int t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = col_ptr_[begin]; k < col_ptr_[end]; ++k) value_offsets_[k + 1] += before[t];
  });
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
  std::vector<std::exception_ptr> wrong(static_cast<std::size_t>(shares_of(num_stored_blocks())));
  for_each_share(nb, static_cast<int>(wrong.size()), [&](int t, std::int64_t begin, std::int64_t end) {
    try {
      check_columns(*this, begin, end);
    } catch (const LinearShapeError&) {
      wrong[static_cast<std::size_t>(t)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& one : wrong)
    if (one) std::rethrow_exception(one);
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
