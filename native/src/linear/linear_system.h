// (H + D) x = b, whatever solves it, with or without a Schur complement.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "linear/block_pattern.h"
#include "linear/schur_complement.h"

namespace graphopt {

// Of a block matrix on a pattern.
class LinearSolver {
 public:
  virtual ~LinearSolver() = default;
  virtual const BlockPattern& pattern() const = 0;
  // values (values_size), damping (dim) or null. False: not positive definite.
  virtual bool factorize(const double* values, const double* damping) = 0;
  // x (dim) := (H + D)^-1 b; x may be b.
  virtual void solve(const double* b, double* x) = 0;
};

// schur: null, or solver is one of S.
class LinearSystem {
 public:
  explicit LinearSystem(std::shared_ptr<LinearSolver> solver,
                        std::shared_ptr<SchurComplement> schur = nullptr)
      : solver_(std::move(solver)),
        schur_(std::move(schur)),
        kept_(static_cast<std::size_t>(schur_ ? schur_->kept_dim() : 0)) {}

  const BlockPattern& pattern() const { return schur_ ? schur_->pattern() : solver_->pattern(); }

  // damping (dim) or null; b is only read where something is eliminated. False: not positive definite.
  bool factorize(const double* values, const double* damping, const double* b) {
    if (!schur_) return solver_->factorize(values, damping);
    return schur_->form(values, damping, b) && solver_->factorize(schur_->reduced_values().data(), nullptr);
  }

  // With the b of `factorize`.
  void solve(const double* b, double* x) {
    if (!schur_) return solver_->solve(b, x);
    solver_->solve(schur_->reduced_b().data(), kept_.data());
    schur_->back_substitute(kept_.data(), x);
  }

  // With another b, after `factorize`.
  void solve_again(const double* b, double* x) {
    if (schur_) schur_->reduce(b);
    solve(b, x);
  }

 private:
  std::shared_ptr<LinearSolver> solver_;
  std::shared_ptr<SchurComplement> schur_;
  std::vector<double> kept_;
};

}  // namespace graphopt
