// Conjugate gradients with a block Jacobi preconditioner, as g2o's LinearSolverPCG.
//
//   A x = b,  M = block diagonal of A,   r = b - A x,   stop when  r' M^-1 r <= tolerance * (b' M^-1 b)
//
// Where less than a solution to the tolerance will do, it also stops once iterations gain little (S. G. Nash,
// A. Sofer, Assessing a search direction within a truncated-Newton method, 1990): iteration i adds g = alpha
// r' M^-1 r to the quadratic model 2 b'x - x'A x; as many iterations again at this gain would add i g.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linear/block_pattern.h"
#include "linear/conjugate_gradients.h"
#include "linear/schur_complement.h"
#include "linear/team_loop.h"
#include "parallel/call_mutex.h"

namespace graphopt {

// What PCG needs of a symmetric positive definite matrix.
class BlockOperator {
 public:
  virtual ~BlockOperator() = default;
  virtual const std::vector<std::int32_t>& dims() const = 0;  // first num_blocks() are used
  virtual int num_blocks() const = 0;
  virtual std::int64_t offset(int block) const = 0;
  virtual int worth_threads() const = 0;
  virtual void require_threads(int num_threads) = 0;
  virtual void diagonal_blocks(double* out) = 0;  // damping included
  // A block to precondition with where the diagonal block is not positive definite; false: there is none.
  virtual bool block_instead(int /*block*/, double* /*out*/) const { return false; }
  virtual void multiply(const double* x, double* y, const Team& team) = 0;  // ends without a barrier
};

// H + D on a pattern; the arrays are referred to.
class PatternOperator final : public BlockOperator {
 public:
  explicit PatternOperator(std::shared_ptr<const BlockPattern> pattern);
  void set(const double* values, const double* damping) { values_ = values, damping_ = damping; }
  const BlockPattern& pattern() const { return *pattern_; }
  const std::vector<std::int32_t>& dims() const override { return pattern_->dims(); }
  int num_blocks() const override { return pattern_->num_blocks(); }
  std::int64_t offset(int block) const override { return pattern_->offset(block); }
  int worth_threads() const override;
  void require_threads(int num_threads) override { partial_.require(num_threads, pattern_->dim()); }
  void diagonal_blocks(double* out) override;
  void multiply(const double* x, double* y, const Team& team) override;
  void multiply(const double* values, const double* x, double* y);  // y = H x, with its own team

 private:
  CallMutex mutex_;
  std::shared_ptr<const BlockPattern> pattern_;
  std::vector<std::int64_t> cost_;  // cumulative by column
  const double* values_ = nullptr;
  const double* damping_ = nullptr;
  ThreadVectors partial_;
};

// The Schur complement after form(), never stored. Its diagonal blocks, for the preconditioner, may be
// H_pp's.
class SchurOperator final : public BlockOperator {
 public:
  SchurOperator(std::shared_ptr<SchurComplement> schur, bool diagonal_of_kept)
      : schur_(std::move(schur)), diagonal_of_kept_(diagonal_of_kept) {}
  SchurComplement& schur() { return *schur_; }
  const std::vector<std::int32_t>& dims() const override { return schur_->pattern().dims(); }
  int num_blocks() const override { return schur_->num_kept(); }
  std::int64_t offset(int block) const override { return schur_->pattern().offset(block); }
  int worth_threads() const override { return schur_->worth_threads(); }
  void require_threads(int num_threads) override { schur_->require_threads(num_threads); }
  void diagonal_blocks(double* out) override { schur_->diagonal_blocks(out, diagonal_of_kept_); }
  bool block_instead(int block, double* out) const override {
    if (!diagonal_of_kept_) schur_->kept_block(block, out);
    return !diagonal_of_kept_;
  }
  void multiply(const double* x, double* y, const Team& team) override { schur_->multiply(x, y, team); }

 private:
  std::shared_ptr<SchurComplement> schur_;
  const bool diagonal_of_kept_;
};

class Pcg {
 public:
  // max_iterations < 0: the dimension of the system.
  Pcg(std::shared_ptr<BlockOperator> matrix, double tolerance, std::int64_t max_iterations);

  // Invert the diagonal blocks of the operator's current numbers. One of S that rounding has left not
  // positive definite is replaced by that of H + D. False: failed_block() is not positive definite either
  // way.
  bool factorize();

  // x (dim) := approximate solution, from x = 0; x may be b.
  void solve(const double* b, double* x);

  // For the solves to come: stop where r' M^-1 r <= share (b' M^-1 b) as well, and, after a quarter of the
  // iterations of the solve before (10 to 30; 30 in the first), where i g < max(share times the model,
  // worth). 0, 0: neither.
  void set_early_stop(double share, double worth) { share_ = share, worth_ = worth; }

  // Forget the solve before.
  void reset() { is_first_ = true; }

  BlockOperator& matrix() { return *matrix_; }
  std::int64_t dim() const { return matrix_->offset(matrix_->num_blocks()); }
  std::int64_t iterations() const { return outcome_.iterations; }
  double residual() const { return outcome_.residual; }  // r' M^-1 r at the end
  bool converged() const { return outcome_.is_converged; }
  int failed_block() const { return failed_block_; }
  std::int64_t memory_bytes() const {
    return static_cast<std::int64_t>((2 * block_offset_.back() + 5 * dim()) * sizeof(double));
  }

 private:
  class Rows;
  void solve_team(const double* b, double* x, const Team& team);
  void precondition(const double* r, double* s, int begin, int end) const;
  double dot(const double* a, const double* b, std::int64_t begin, std::int64_t end, const Team& team);

  std::shared_ptr<BlockOperator> matrix_;
  const double tolerance_;
  const std::int64_t max_iterations_;
  bool is_first_ = true;
  std::vector<std::int64_t> block_offset_;  // (num blocks + 1) into inverse_
  std::vector<double> inverse_, diagonal_, scratch_;
  std::vector<double> r_, d_, q_, s_, x_;
  struct alignas(64) Partial {
    double value = 0.0;
  };
  std::vector<Partial> partial_;
  double share_ = 0.0, worth_ = 0.0;
  ConjugateOutcome outcome_;
  bool ready_ = false;
  bool stops_ = false;  // the caller was asked to stop; written between two barriers
  int failed_block_ = -1;
  CallMutex mutex_;
};

}  // namespace graphopt
