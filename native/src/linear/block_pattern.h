// Where the blocks of a symmetric block-sparse matrix are.
//
// The upper triangle of blocks is stored by block column: rows ascending, the diagonal block last and always
// there. Block k is a dense dims[row] x dims[col] matrix, column-major; blocks follow each other in one array
// of `values`. Diagonal blocks are stored full.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt {

class BlockPattern {
 public:
  // dims (nb), col_ptr (nb + 1), row_idx (nnzb). Throws LinearShapeError with the offending place.
  BlockPattern(std::vector<std::int32_t> dims, std::vector<std::int64_t> col_ptr,
               std::vector<std::int32_t> row_idx);

  int num_blocks() const { return static_cast<int>(dims_.size()); }
  std::int64_t num_stored_blocks() const { return static_cast<std::int64_t>(row_idx_.size()); }
  std::int64_t dim() const { return offsets_.back(); }                // scalar rows
  std::int64_t values_size() const { return value_offsets_.back(); }  // doubles in `values`

  int block_dim(int block) const { return dims_[block]; }
  std::int64_t offset(int block) const { return offsets_[block]; }  // first scalar row of a block
  std::int64_t column_begin(int col) const { return col_ptr_[col]; }
  std::int64_t column_end(int col) const { return col_ptr_[col + 1]; }
  std::int64_t diagonal(int col) const { return col_ptr_[col + 1] - 1; }
  int row(std::int64_t k) const { return row_idx_[k]; }
  std::int64_t value_offset(std::int64_t k) const { return value_offsets_[k]; }

  // Indices of the matrix's diagonal in `values` (dim).
  std::vector<std::int64_t> diagonal_indices() const;

  // Block that holds a scalar row.
  int block_of(std::int64_t scalar_row) const;

  std::size_t nbytes() const {
    return 4 * (dims_.size() + row_idx_.size()) +
           8 * (col_ptr_.size() + offsets_.size() + value_offsets_.size());
  }
  const std::vector<std::int32_t>& dims() const { return dims_; }
  const std::vector<std::int64_t>& col_ptr() const { return col_ptr_; }
  const std::vector<std::int32_t>& row_idx() const { return row_idx_; }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  const std::vector<std::int64_t>& value_offsets() const { return value_offsets_; }

 private:
  void check() const;

  std::vector<std::int32_t> dims_;
  std::vector<std::int64_t> col_ptr_;
  std::vector<std::int32_t> row_idx_;
  std::vector<std::int64_t> offsets_;        // (nb + 1)
  std::vector<std::int64_t> value_offsets_;  // (nnzb + 1)
};

}  // namespace graphopt
