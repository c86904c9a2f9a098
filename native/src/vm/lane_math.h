// Transcendental functions on the lanes of a chunk.
#pragma once

#include <cmath>

#include "vm/lanes.h"

namespace graphopt::vm {

inline void lanes_sin(double* d, const double* a) {
  for (int i = 0; i < kLanes; ++i) d[i] = std::sin(a[i]);
}

inline void lanes_cos(double* d, const double* a) {
  for (int i = 0; i < kLanes; ++i) d[i] = std::cos(a[i]);
}

// s = sin(a), c = cos(a); the destinations may be the source.
inline void lanes_sincos(double* s, double* c, const double* a) {
  for (int i = 0; i < kLanes; ++i) {
    const double x = a[i];
    s[i] = std::sin(x);
    c[i] = std::cos(x);
  }
}

}  // namespace graphopt::vm
