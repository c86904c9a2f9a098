// Conjugate gradients of ranks that are threads with a device each, without Python between the iterations.
//
//   while not done:  message of the device -> sum over the ranks -> alpha, beta -> next submission
//
// What a submission does is recorded by graphopt/distributed/resident.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linear/conjugate_gradients.h"
#include "vulkan/program.h"
#include "vulkan/rank_barrier.h"

namespace graphopt::vulkan {

struct RankLoop {
  std::vector<std::vector<std::shared_ptr<Program>>>
      advance;                      // submissions of iterations 0, 1, ..., which repeat
  std::shared_ptr<Buffer> message;  // `rows` numbers, then r's and s'w as two numbers each, and failures
  std::shared_ptr<Buffer> total;    // `rows` sums, then alpha and beta
  std::uint64_t rows = 0;
  bool is_double = true;  // what the buffers hold: float64 or float32
  double timeout_s = 60.0;
};

struct RankOutcome {
  ConjugateOutcome conjugate;
  double seconds_communicating = 0.0;
};

// Collective. The first message is there; the last sum is not taken to the device.
RankOutcome iterate_ranks(RankBarrier& barrier, int rank, const RankLoop& loop, const ConjugateRule& rule);

}  // namespace graphopt::vulkan
