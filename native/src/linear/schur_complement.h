// Schur complement of the damped normal equations: elimination of mutually independent blocks (landmarks).
//
//   [ H_pp  H_pl ] [ x_p ]   [ b_p ]        S   = H_pp - H_pl H_ll^-1 H_lp        S x_p = b_p - H_pl H_ll^-1
//   b_l [ H_lp  H_ll ] [ x_l ] = [ b_l ]        x_l = H_ll^-1 (b_l - H_lp x_p)
//
// (damping included in H_pp and H_ll). H_ll is block diagonal, and the column of a landmark l holds its
// blocks W_il of H_pl and H_ll side by side. Explicit: block column j of S is made by one thread from the
// landmarks that j sees, in ascending order,
//   S_ij -= W_il V',  V = W_jl H_ll^-1,  for all kept i <= j of landmark l,
// so nothing is merged and the result does not depend on the number of threads. A small S is made landmark by
// landmark instead (schur_shares.h). Implicit: S is only
// multiplied with vectors. Reference: Agarwal et al., Bundle Adjustment in the Large, ECCV 2010.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "linear/aligned_buffer.h"
#include "linear/block_pattern.h"
#include "linear/team_loop.h"
#include "parallel/call_mutex.h"

namespace graphopt {

class SchurComplement {
 public:
  // Blocks num_kept .. nb are eliminated. Throws LinearShapeError if two of them share a stored block.
  SchurComplement(std::shared_ptr<const BlockPattern> pattern, int num_kept, bool explicit_form);
  ~SchurComplement();

  // Prepare everything that depends on the numbers. damping (dim) may be null. The arrays are referred to
  // until the next form(). False if an eliminated block is not positive definite: failed_block().
  bool form(const double* values, const double* damping, const double* b);

  // Another b (dim) after `form`, for reduced_b() and back_substitute(); S and the inverses stay.
  void reduce(const double* b);

  // x_kept (kept_dim) -> x (dim)
  void back_substitute(const double* x_kept, double* x);

  // y := S x (kept_dim); every thread of the team calls it. x and y must not overlap.
  void multiply(const double* x, double* y, const Team& team);
  void multiply(const double* x, double* y);
  void require_threads(int num_threads);  // before a team calls multiply
  int worth_threads() const;

  // Diagonal blocks of S, or of_kept: of H_pp + D, one after the other, column-major (diagonal_size()).
  void diagonal_blocks(double* out, bool of_kept = false);
  // The diagonal block of H_pp + D of one kept block.
  void kept_block(int block, double* out) const;

  const BlockPattern& pattern() const { return *pattern_; }
  std::shared_ptr<const BlockPattern> reduced_pattern() const {
    return reduced_pattern_;
  }  // null if implicit
  const std::vector<double>& reduced_values() const { return reduced_values_; }
  const std::vector<double>& reduced_b() const { return reduced_b_; }
  bool explicit_form() const { return explicit_; }
  void require_formed(const char* caller) const;
  int num_kept() const { return num_kept_; }
  std::int64_t kept_dim() const { return kept_dim_; }
  std::int64_t diagonal_size() const { return diagonal_offset_.back(); }
  int failed_block() const { return failed_block_; }
  std::int64_t memory_bytes() const;

 private:
  struct Observation {          // kept block j sees an eliminated block
    std::int64_t stored_block;  // W
    std::int64_t value;         // its offset in values
    std::int64_t column_value;  // that of the first block of its column
    std::int32_t position;      // of W in its column
    std::int32_t eliminated;    // block number in the pattern
  };
  struct Scratch {  // of one thread; on cache lines of its own
    AlignedBuffer memory;
    double* small = nullptr;     // a scaled block or two landmark vectors
    double* diagonal = nullptr;  // sum of a diagonal block, leading dimension padded(dim)
    double* b = nullptr;         // sum of a block of b_s
  };
  struct Kernels;  // the loops, for fixed or run-time block dimensions
  template <int KeptDim, int EliminatedDim>
  struct Loops;
  struct Seen;
  struct Shares;  // of S made landmark by landmark
  template <int KeptDim, int EliminatedDim>
  struct ShareLoops;
  template <int Dim>
  static bool invert_block(SchurComplement& self, int block, double* lower, int dim);
  template <int Dim>
  static int invert_blocks(SchurComplement& self, int begin, int end, double* lower);

  void check() const;
  void index_observations();
  void find_reduced_pattern();
  void sort_columns_by_cost();
  void plan_shares();
  void subtract_shares();
  const Kernels& choose_kernels() const;

  double* inverse(int block) { return inverses_.data() + inverse_offset_[block - num_kept_]; }
  double* scaled_b(int block) { return scaled_b_.data() + (pattern_->offset(block) - kept_dim_); }

  std::shared_ptr<const BlockPattern> pattern_;
  std::shared_ptr<const BlockPattern> reduced_pattern_;
  const int num_kept_;
  const bool explicit_;
  std::int64_t kept_dim_ = 0;
  int max_kept_dim_ = 0, max_eliminated_dim_ = 0;
  std::vector<std::int64_t> observations_begin_;           // (num_kept + 1)
  std::vector<Observation> observations_;                  // by kept block, eliminated blocks ascending
  std::vector<std::int32_t> columns_by_cost_;              // kept blocks, most work first
  std::vector<std::int64_t> kept_cost_, eliminated_cost_;  // cumulative, for static shares
  std::vector<std::int64_t> inverse_offset_;               // (num eliminated + 1)
  std::vector<std::int64_t> diagonal_offset_;              // (num_kept + 1)
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<Shares> shares_;  // null: S is made column by column

  const double* values_ = nullptr;
  const double* damping_ = nullptr;
  const double* b_ = nullptr;
  std::vector<double> inverses_;  // H_ll^-1
  std::vector<double> scaled_b_;  // H_ll^-1 b_l
  std::vector<double> reduced_values_, reduced_b_;
  ThreadVectors partial_;
  std::vector<Scratch> scratch_;                 // per thread
  std::vector<std::vector<std::int32_t>> slot_;  // per thread (num_kept): stored block of the current column
  std::vector<int> failed_;                      // per thread
  std::atomic<int> next_column_{0};
  bool formed_ = false;
  int failed_block_ = -1;
  CallMutex mutex_;
};

}  // namespace graphopt
