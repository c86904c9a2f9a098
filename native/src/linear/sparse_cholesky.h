// Supernodal multifrontal Cholesky factorisation of a symmetric positive definite block matrix.
//
//   P (H + D) P' = L L'
//
// The structure is analysed once (ordering, supernodes, schedule). `factorize` goes up the assembly tree:
// each front collects its blocks of H and the Schur complements of its children, eliminates its pivots
// (front.h), and leaves its own Schur complement to its parent. Subtrees run in parallel, large fronts near
// the roots are shared by all threads. Reference: Liu, The multifrontal method for sparse matrix solution,
// SIAM Review 1992.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "linear/aligned_buffer.h"
#include "linear/block_pattern.h"
#include "linear/flush_denormals.h"
#include "linear/front.h"
#include "linear/linear_system.h"
#include "linear/schedule.h"
#include "linear/supernodes.h"
#include "parallel/call_mutex.h"

namespace graphopt {

class SparseCholesky final : public LinearSolver {
 public:
  // signed_pivots: L D L' with D = diag(+-1) instead of L L'.
  SparseCholesky(std::shared_ptr<const BlockPattern> pattern, const std::string& ordering,
                 bool signed_pivots = false);
  SparseCholesky(std::shared_ptr<const BlockPattern> pattern, SymbolicFactor symbolic, bool signed_pivots);

  // False if a pivot is not positive: see failed_block().
  bool factorize(const double* values, const double* damping) override;
  void solve(const double* b, double* x) override;

  // Blocks of (H + D)^-1: for pair k the block (rows[k], cols[k]), column-major, one after the other in
  // `out`.
  void marginals(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols, double* out);

  const BlockPattern& pattern() const override { return *pattern_; }
  const SymbolicFactor& symbolic() const { return symbolic_; }
  bool factorized() const { return factorized_; }
  int failed_block() const { return failed_block_; }
  std::int64_t num_negative() const;  // pivots
  std::int64_t memory_bytes() const;
  std::int64_t required_bytes() const;  // that the first factorisation takes

 private:
  void plan();
  void allocate();
  Front front(int s);
  int factorize_once(const double* values, const double* damping);
  void factorize_thread(int thread, const double* values, const double* damping);
  int factorize_supernode(int s, const Team& team, int* failed_pivot, const double* values,
                          const double* damping);
  void assemble(int s, const Team& team, const double* values, const double* damping);
  void extend_add(int s, bool into_update, const Team& team);
  void solve_factorized(const double* b, double* x);
  void solve_thread(int thread, SpinBarrier& barrier);
  void forward(int s, int thread);
  void backward(int s, int thread);
  template <class Task>
  void run(const Task& task);

  std::shared_ptr<const BlockPattern> pattern_;
  SymbolicFactor symbolic_;
  Schedule schedule_;
  bool is_allocated_ = false;  // what the schedule needs
  AlignedBuffer factor_, update_;
  std::vector<double> min_pivot_;  // (dim), elimination order
  std::vector<double> signs_;      // (dim), the same, or empty
  std::vector<double> permuted_;   // (dim) right side in elimination order
  std::vector<std::vector<double>>
      above_;                           // per thread (top_dim): its subtrees' part of the top's right side
  std::vector<AlignedBuffer> scratch_;  // per thread (max_below, padded)
  std::vector<std::vector<std::int64_t>> position_;  // per thread (max_below)
  std::vector<int> failed_pivot_;                    // per thread, elimination order, -1: none
  std::vector<OrdinarySize> diagonals_;              // per thread, of its pivots in H + D
  std::deque<Meeting> meetings_;                     // of schedule_.team_fronts
  bool signed_pivots_ = false;
  bool factorized_ = false;
  bool flushes_ = true;  // denormals, as the diagonals of the last factorisation allow
  int failed_block_ = -1;
  CallMutex mutex_;

  friend class SelectedInverse;
};

}  // namespace graphopt
