// Runs instructions on lanes.
#pragma once

#include "batch/compiled.h"
#include "batch/lanes.h"

namespace graphopt::batch {

// Lanes that run through the instructions together: 2 KiB per register.
template <class T>
inline constexpr int kBlock = 2048 / static_cast<int>(sizeof(T));

template <class T>
using Column = vm::AlignedVector<T>;

// vectors[k]: where vector k of this block starts, aligned to 64 bytes; destinations are among them. `count`:
// lanes, a multiple of those of a vector, at most kBlock.
template <class T>
void run(const std::vector<Instruction>& code, T* const* vectors, const T* scalars, int count);

// sum_i a[i] b[i] for any count.
template <class T>
double dot(const T* a, const T* b, int count);

}  // namespace graphopt::batch
