// Work queues of the block solver: which blocks are multiplied for which destination, sorted by destination.
//
// Everything depends on the block pattern only. Offsets are counted in scalars. Order within a destination
// follows the order of the blocks in memory, so that sums have a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plain_array.h"

namespace graphopt::vulkan {

// Items of block rows of a sparse product y = A x.
struct RowQueue {
  std::vector<std::int64_t>
      segment_ptr;  // (num_rows * num_classes + 1): items per block row and source class
  std::vector<std::uint32_t> item_block;  // offset of the block in values
  std::vector<std::uint32_t>
      item_scalar;  // first scalar of the source in x; bit 31: multiply by the transpose
};

struct RowQueueInput {
  std::int64_t num_blocks = 0, num_rows = 0;
  int num_classes = 1;
  const std::int32_t* row = nullptr;  // (num_blocks,) block row and column of each block
  const std::int32_t* col = nullptr;
  const std::uint8_t* uses = nullptr;       // (num_blocks,) bit 0: y_row += B x_col; bit 1: y_col += B' x_row
  const std::int64_t* offset = nullptr;     // (num_blocks,) offset of the block in values
  const std::int64_t* scalar = nullptr;     // per block row or column: its first scalar
  const std::uint8_t* dim_class = nullptr;  // per block row or column: class of its dimension
};

RowQueue build_row_queue(const RowQueueInput& input);

// Columns of the upper triangle of H by blocks; those from num_kept on are landmarks, which see kept rows.
struct LandmarkColumns {
  std::int64_t num_kept = 0, num_blocks = 0;
  const std::int64_t* col_ptr = nullptr;  // (num_blocks + 1) the diagonal block is a column's last
  const std::int32_t* row_idx = nullptr;
  const std::int64_t* offset = nullptr;  // of each stored block in values
};

// For each kept vertex its landmarks, ascending, with their H_pl blocks; and these blocks by landmark.
struct LandmarkLists {
  PlainArray<std::int64_t> ptr;                       // (num_kept + 1) first entry of each kept vertex
  PlainArray<std::uint32_t> landmark, block;          // of each entry; offsets in values
  PlainArray<std::uint32_t> item_row, item_landmark;  // (num_items) of each block
};

LandmarkLists build_landmark_lists(const LandmarkColumns& columns);

// Pairs of H_pl blocks for every block of the Schur complement.
struct SchurQueue {
  std::vector<std::int64_t> col_ptr;  // (num_kept + 1): upper triangle of the Schur complement, by column
  std::vector<std::int32_t> row_idx;
  std::vector<std::int64_t> pair_ptr;  // (num_blocks * num_classes + 1): pairs per block and landmark class
  std::vector<std::uint32_t> pair_left, pair_right;  // offsets of W_il and W_jl, i <= j
  std::vector<std::uint32_t> pair_inverse;           // offset of H_ll^-1
};

struct SchurQueueInput {
  std::int64_t num_kept = 0, num_landmarks = 0;
  int num_classes = 1;
  const std::int64_t* landmark_items = nullptr;  // (num_landmarks + 1)
  const std::int32_t* item_row = nullptr;        // (num_items,) kept vertex, ascending within a landmark
  const std::int64_t* item_offset = nullptr;     // (num_items,) offset of W in values
  const std::int64_t* inverse_offset = nullptr;  // (num_landmarks,)
  const std::uint8_t* landmark_class = nullptr;  // (num_landmarks,) class of its dimension
  const std::int64_t* kept_col_ptr = nullptr;    // (num_kept + 1) pattern of H_pp, always part of the result
  const std::int32_t* kept_row_idx = nullptr;
};

SchurQueue build_schur_queue(const SchurQueueInput& input);

}  // namespace graphopt::vulkan
