// Rounds of optimization of one frame: a small loop with those observations that are inliers; then every
// observation is judged anew by its chi2, outliers too, and the next round begins.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/small_loop.h"

namespace graphopt::vm {

// Edges of a group whose information is weight times the identity.
struct JudgedEdges {
  int group = 0;                         // of the linearizer
  View<const double> weight;             // (rows) 1 / sigma^2
  View<const std::int32_t> observation;  // (rows) whose chi2 an edge is a part of, -1: none
};

struct RoundRules {
  int rounds = 1;
  int robust_rounds = 0;  // the first ones have robust kernels; the others have them too wide to matter
  std::int64_t min_observations = 0;
  std::vector<double> limits;  // [dimension] largest chi2 of an inlier, squared width of a kernel
};

// n observations; none of those that do not hold takes part.
struct JudgedObservations {
  View<const bool> holds;
  View<bool> inliers;  // in: who takes part in the first round
  View<double> chi2;   // without robust kernel after the last round, infinite where the model does not hold
};

struct RoundsResult {
  LoopResult last;  // of the last round; seconds of all
  int rounds = 0;   // that ran
};

// loop works on the linearizer's edges. A round ends the rounds if nobody changes sides after it, unless it
// was robust and another one is not.
template <class Method>
RoundsResult run_rounds(SmallLoop& loop, Linearizer& linearizer, const Method& fresh, const StopRules& rules,
                        const std::vector<JudgedEdges>& edges, const RoundRules& round_rules,
                        const JudgedObservations& seen, const ShouldStop& should_stop);

}  // namespace graphopt::vm
