// Structure of arrays <-> array of structures, a tile of kVectorLanes x kVectorLanes at a time.
#pragma once

#include <cstdint>

#include "linear/transpose_tile.h"
#include "vm/lanes.h"

namespace graphopt::vm {

// `lanes` below: how many are wanted, in whole vectors; Width: how many a register of the frame has.

// rows[l * stride + k] = frame[registers[k] * Width + l] for k < count; stride is a multiple of kVectorLanes
// and at least count; what lies between count and stride is overwritten.
template <int Width>
inline void lanes_to_rows(const double* frame, const std::int32_t* registers, int count, double* rows,
                          int stride, int lanes) {
  for (int k = 0; k < count; k += kVectorLanes)
    for (int l = 0; l < lanes; l += kVectorLanes) {
      Vec tile[kVectorLanes];
      for (int i = 0; i < kVectorLanes; ++i) {
        const std::int32_t r = registers[k + i < count ? k + i : count - 1];
        tile[i] = load(frame + static_cast<std::size_t>(r) * Width + l);
      }
      transpose_tile(tile);
      for (int i = 0; i < kVectorLanes; ++i) store(rows + (l + i) * stride + k, tile[i]);
    }
}

// frame[registers[k] * Width + l] = base[rows[l] * columns + k]; register -1: not wanted.
template <int Width>
inline void rows_to_lanes(const double* base, int columns, const std::int32_t* rows,
                          const std::int32_t* registers, double* frame, int lanes) {
  for (int k = 0; k < columns; k += kVectorLanes) {
    const int count = columns - k < kVectorLanes ? columns - k : kVectorLanes;
    for (int l = 0; l < lanes; l += kVectorLanes) {
      Vec tile[kVectorLanes];
      for (int i = 0; i < kVectorLanes; ++i)
        tile[i] = load_partial(base + static_cast<std::int64_t>(rows[l + i]) * columns + k, count);
      transpose_tile(tile);
      for (int i = 0; i < count; ++i)
        if (registers[k + i] >= 0)
          store(frame + static_cast<std::size_t>(registers[k + i]) * Width + l, tile[i]);
    }
  }
}

// The same where all lanes take the same row.
template <int Width>
inline void row_to_lanes(const double* row, int columns, const std::int32_t* registers, double* frame,
                         int lanes) {
  for (int k = 0; k < columns; ++k) {
    if (registers[k] < 0) continue;
    double* out = frame + static_cast<std::size_t>(registers[k]) * Width;
    for (int l = 0; l < lanes; l += kVectorLanes) store(out + l, broadcast(row[k]));
  }
}

}  // namespace graphopt::vm
