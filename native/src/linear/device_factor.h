// The structure of a factorisation on a device, which takes fronts level by level from the leaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linear/supernodes.h"

namespace graphopt {

// Rough seconds on a large GPU, to choose an ordering.
double device_seconds(const SymbolicFactor& factor);

// Level of each front, from the furthest leaves (0) to the roots: a parent's is the one after its children's.
std::vector<std::int32_t> levels_of(const SymbolicFactor& factor);

// ordering: as order_blocks; "auto" compares by device_seconds, and takes one dense front where that is
// faster.
SymbolicFactor device_factor(const BlockPattern& pattern, const std::string& ordering);

}  // namespace graphopt
