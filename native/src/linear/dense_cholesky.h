// Dense Cholesky factorisation of a block matrix: one front that holds everything. For small or full systems,
// such as the reduced camera system of a bundle adjustment.
#pragma once

#include <memory>
#include <vector>

#include "linear/aligned_buffer.h"
#include "linear/block_pattern.h"
#include "linear/front.h"
#include "linear/linear_system.h"
#include "parallel/call_mutex.h"

namespace graphopt {

class DenseCholesky final : public LinearSolver {
 public:
  explicit DenseCholesky(std::shared_ptr<const BlockPattern> pattern, bool signed_pivots = false);

  // False if a pivot is not positive: see failed_block().
  bool factorize(const double* values, const double* damping) override;
  void solve(const double* b, double* x) override;

  // Blocks (rows[k], cols[k]) of (H + D)^-1, column-major, one after the other.
  void marginals(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols, double* out);

  const BlockPattern& pattern() const override { return *pattern_; }
  bool factorized() const { return factorized_; }
  int failed_block() const { return failed_block_; }
  std::int64_t num_negative() const;  // pivots
  double flops() const;
  std::int64_t memory_bytes() const { return factor_.size() * static_cast<std::int64_t>(sizeof(double)); }

 private:
  void assemble(const Team& team, const double* values, const double* damping);
  void solve_factorized(const double* b, double* x);
  Front front();
  int factorize_thread(const Team& team, const double* values, const double* damping, int* failed);

  std::shared_ptr<const BlockPattern> pattern_;
  AlignedBuffer factor_;
  std::vector<double> min_pivot_, signs_;
  bool signed_pivots_ = false;
  bool factorized_ = false;
  int failed_block_ = -1;
  CallMutex mutex_;
};

}  // namespace graphopt
