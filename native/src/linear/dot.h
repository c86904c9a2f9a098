// Scalar products of long vectors by all threads.
#pragma once

#include <cstdint>

namespace graphopt {

// sum a_i b_i, added by pieces of fixed size: the same for any number of threads.
double dot(const double* a, const double* b, std::int64_t size);

}  // namespace graphopt
