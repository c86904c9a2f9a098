// Columns of arrays of edges, put together in blocks of 64 edges side by side, as kernels of a device read
// them.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::edges {

inline constexpr int kBlock = 64;

// Some columns of a row-major array with one row per edge.
template <class T>
struct Columns {
  const T* data = nullptr;
  int stride = 0;                     // numbers per row
  std::vector<int> columns;           // which of them
  const std::int64_t* row = nullptr;  // of each edge, null: its number
};

enum class Width { kFloat64, kFloat32, kTwoFloats };

// out: (num_blocks, number of columns, 64) of blocks first_block ... of the edges in this order, the last one
// filled up with copies of the last edge.
void block_rows(const std::vector<Columns<std::int32_t>>& sources, const std::uint32_t* order,
                std::int64_t num_edges, std::int64_t first_block, std::int64_t num_blocks,
                std::uint32_t* out);
void block_numbers(const std::vector<Columns<double>>& sources, const std::uint32_t* order,
                   std::int64_t num_edges, std::int64_t first_block, std::int64_t num_blocks, Width width,
                   void* out);

// Records first_row ... of (n, columns) numbers, each followed by zeros up to `record` numbers. order: row of
// each record, null: its number.
void pad_rows(const double* values, int columns, int record, const std::uint32_t* order,
              std::int64_t first_row, std::int64_t num_rows, Width width, void* out);

// The other way round: the first `columns` numbers of each record of float64 or two floats; rows that are not
// chosen stay as they are.
void unpad_rows(const void* records, int record, Width width, const std::uint32_t* order, const bool* chosen,
                std::int64_t num_rows, int columns, double* values);

// Of every scalar row of blocks one after the other: offset of the row, first scalar row of its block, and
// the block's dimension; offset: of each block's first row. Writes (sum of dims, 3).
void row_table(const std::int32_t* dims, const std::int64_t* offset, std::int64_t num_blocks,
               std::uint32_t* out);

// 128 bits that tell contents apart, not secure; independent of the number of threads.
struct Fingerprint {
  std::uint64_t low = 0, high = 0;
};
Fingerprint fingerprint(const void* data, std::int64_t num_bytes);

}  // namespace graphopt::edges
