// Adding the Schur complement of a child to the front of its parent.
#pragma once

#include <algorithm>
#include <cstdint>

#include "linear/strips.h"

namespace graphopt {

// Columns first .. last of a child's Schur complement and where they go in its parent.
struct ChildColumns {
  const double* source;          // triangular strips
  const std::int32_t* row;       // (m) row of the parent's front
  const std::int64_t* position;  // (m) offset of that row in `target`
  double* target;
  int first, last, m;
  int shift;  // front row of the target's first column
};

inline void add_child(const ChildColumns& child) {
  const auto column = [&](int col) {
    return child.target + static_cast<std::int64_t>(child.row[col] - child.shift) * kStrip;
  };
  for (int strip = child.first / kStrip; strip * kStrip < child.m; ++strip) {
    const int r0 = strip * kStrip, lanes = std::min(kStrip, child.m - r0);
    const double* const values = child.source + triangle_size(strip);
    const std::int64_t* const at = child.position + r0;
    const int full_end = std::min(child.last, r0);  // columns left of the diagonal tile
    int col = child.first;
    if (lanes == kStrip && col < full_end && at[0] % kStrip == 0 && at[kStrip - 1] == at[0] + kStrip - 1) {
      for (; col < full_end; ++col) *as_vec(column(col) + at[0]) += *as_vec(values + col * kStrip);
    } else if (lanes == kStrip) {
      for (; col < full_end; ++col) {
        double* const to = column(col);
        const double* const from = values + col * kStrip;
#pragma GCC unroll 8
        for (int i = 0; i < kStrip; ++i) to[at[i]] += from[i];
      }
    }
    for (; col < std::min(child.last, r0 + lanes); ++col) {
      double* const to = column(col);
      const double* const from = values + col * kStrip;
      for (int i = std::max(0, col - r0); i < lanes; ++i) to[at[i]] += from[i];
    }
  }
}

}  // namespace graphopt
