// Chosen blocks of the inverse of a factorised matrix (marginal covariances).
//
// Inside the structure of L: going down the assembly tree, with Z the inverse restricted to a front's rows,
//   X = L21 L11^-1,   Z21 = -Z22 X,   Z11 = L11^-T L11^-1 + X' Z22 X,
// where Z22 is part of the parent's Z (Takahashi, Fagan and Chen 1973, by supernodes). Only the fronts
// between the asked blocks and their roots are visited. Other blocks come from solving for the columns of the
// identity, as do all of them where that takes less arithmetic.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "linear/sparse_cholesky.h"

namespace graphopt {

class SelectedInverse {
 public:
  explicit SelectedInverse(SparseCholesky& factor);

  // Block (rows[k], cols[k]), column-major, one after the other.
  void blocks(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& cols, double* out);

 private:
  struct Request {
    std::int32_t row, col;  // blocks
    double* out;
  };
  bool in_factor(const Request& request) const;
  int supernode(const Request& request) const;
  double tree_cost(const std::vector<Request>& requests) const;
  double solve_cost(const std::vector<Request>& requests) const;
  void from_tree(const std::vector<Request>& requests);
  void from_solves(std::vector<Request> requests);
  void unpack(const Supernode& node, Eigen::MatrixXd& lower, Eigen::MatrixXd& below) const;
  Eigen::MatrixXd front_inverse(int s, const Eigen::MatrixXd* parent) const;
  void copy_blocks(int s, const Eigen::MatrixXd& inverse, const std::vector<const Request*>& requests) const;
  int front_row(const Supernode& node, int scalar) const;
  std::vector<bool> needed_supernodes(const std::vector<Request>& requests) const;

  SparseCholesky& factor_;
  const SymbolicFactor& symbolic_;
};

}  // namespace graphopt
