// What parallel regions cost, for benchmarks.
#pragma once

#include <vector>

namespace graphopt {

// Seconds of `repeats` empty regions, each after a pause in which the workers may fall asleep. A team also
// meets once at a barrier. Empty where the pool has fewer threads than a team needs.
std::vector<double> time_regions(int shares, bool is_team, int pause_microseconds, int repeats);

}  // namespace graphopt
