#include "linear_system.h"

#include <algorithm>

#include "error.h"
#include "linear/dense_cholesky.h"
#include "linear/pcg.h"
#include "linear/schur_complement.h"
#include "linear/sparse_cholesky.h"

namespace graphopt::embed {
namespace {

using PatternPtr = std::shared_ptr<const BlockPattern>;

constexpr std::int64_t kDenseDim = 90, kMostDenseDim = 12000;
constexpr double kDenseDensity = 0.4;
constexpr double kMostExplicitPairs = 4e8;
constexpr double kMostFactorFlops = 2e14;
constexpr double kWorthACount = 1e8;
constexpr double kPcgTolerance = 1e-12;

// Conjugate gradients on a pattern, or on the Schur complement that is not formed.
class PcgSolver final : public LinearSolver {
 public:
  explicit PcgSolver(const PatternPtr& pattern)
      : matrix_(std::make_shared<PatternOperator>(pattern)),
        pattern_(pattern),
        pcg_(matrix_, kPcgTolerance, -1) {}
  explicit PcgSolver(const std::shared_ptr<SchurComplement>& schur)
      : pattern_(schur->reduced_pattern()),
        pcg_(std::make_shared<SchurOperator>(schur, false), kPcgTolerance, -1) {}
  const BlockPattern& pattern() const override { return *pattern_; }
  bool factorize(const double* values, const double* damping) override {
    if (matrix_) matrix_->set(values, damping);
    return pcg_.factorize();
  }
  void solve(const double* b, double* x) override { pcg_.solve(b, x); }

 private:
  std::shared_ptr<PatternOperator> matrix_;
  PatternPtr pattern_;
  Pcg pcg_;
};

bool is_dense(const BlockPattern& pattern) {
  const double dim = static_cast<double>(pattern.dim());
  if (pattern.dim() <= kDenseDim) return true;
  return pattern.dim() <= kMostDenseDim &&
         static_cast<double>(pattern.values_size()) > kDenseDensity * 0.5 * dim * dim;
}

// With what it is called.
std::pair<std::shared_ptr<LinearSolver>, int> make_solver(const PatternPtr& pattern, int asked) {
  const bool is_free = asked == GRAPHOPT_LINEAR_AUTO;
  if (asked == GRAPHOPT_DENSE || (is_free && is_dense(*pattern)))
    return {std::make_shared<DenseCholesky>(pattern), GRAPHOPT_DENSE};
  if (asked == GRAPHOPT_PCG) return {std::make_shared<PcgSolver>(pattern), GRAPHOPT_PCG};
  auto sparse = std::make_shared<SparseCholesky>(pattern, "auto");
  if (is_free && sparse->symbolic().flops > kMostFactorFlops)
    return {std::make_shared<PcgSolver>(pattern), GRAPHOPT_PCG};
  return {std::move(sparse), GRAPHOPT_CHOLESKY};
}

// Operations of a step that eliminates the marginalized blocks, or (of_kept) the others, at most.
double elimination_flops(const Problem& problem, bool of_kept) {
  const BlockPattern& pattern = *problem.pattern;
  const auto num_kept = static_cast<int>(problem.numbering.num_kept);
  std::vector<double> degree(static_cast<std::size_t>(pattern.num_blocks()), 0.0);
  for (int column = num_kept; column < pattern.num_blocks(); ++column)
    for (std::int64_t k = pattern.column_begin(column); k < pattern.column_end(column); ++k)
      if (pattern.row(k) < num_kept)
        degree[static_cast<std::size_t>(of_kept ? pattern.row(k) : column)] += 1.0;
  double left_dim = 0.0, num_left = 0.0, pairs = 0.0, forming = 0.0;
  for (int block = 0; block < pattern.num_blocks(); ++block) {
    const double dim = pattern.block_dim(block), half = 0.5 * degree[static_cast<std::size_t>(block)];
    if ((block < num_kept) == of_kept) {
      pairs += 2.0 * half * half;
      forming += 4.0 * half * half * dim;
    } else {
      left_dim += dim;
      num_left += 1.0;
    }
  }
  const double size = left_dim / num_left;
  const bool is_filled = of_kept || pairs > kDenseDensity * 0.5 * num_left * num_left;
  return forming * size * size + (is_filled ? left_dim * left_dim * left_dim / 3.0 : 0.0);
}

// S would take too much work or memory: iterate on the implicit one instead.
bool too_large_to_form(const Problem& problem) {
  const BlockPattern& pattern = *problem.pattern;
  const auto num_kept = static_cast<int>(problem.numbering.num_kept);
  double pairs = 0.0;
  for (int column = num_kept; column < pattern.num_blocks(); ++column) {
    const double degree = static_cast<double>(pattern.column_end(column) - pattern.column_begin(column) - 1);
    pairs += 0.5 * degree * degree;
  }
  const double kept_dim = static_cast<double>(pattern.offset(num_kept)),
               mean = kept_dim / std::max(num_kept, 1);
  const double full = 0.5 * kept_dim * kept_dim, filled = std::min(pairs * mean * mean, full);
  return pairs > kMostExplicitPairs || (kept_dim > static_cast<double>(kMostDenseDim) && filled > 0.1 * full);
}

}  // namespace

ChosenSystem make_system(const Problem& problem, int linear_solver, int schur) {
  const PatternPtr& pattern = problem.pattern;
  const std::int64_t num_kept = problem.numbering.num_kept;
  const bool is_asked = schur == GRAPHOPT_SCHUR_EXPLICIT || schur == GRAPHOPT_SCHUR_IMPLICIT;
  if (is_asked && !problem.has_schur())
    throw Error(GRAPHOPT_INVALID_ARGUMENT,
                "schur needs marginalized vertices beside others that stay; this graph has " +
                    std::to_string(pattern->num_blocks() - num_kept) + " to eliminate and " +
                    std::to_string(num_kept) + " to keep. Mark landmarks with graphopt_set_marginalized.");
  if (schur == GRAPHOPT_SCHUR_IMPLICIT && linear_solver != GRAPHOPT_LINEAR_AUTO &&
      linear_solver != GRAPHOPT_PCG)
    throw Error(GRAPHOPT_INVALID_ARGUMENT,
                "An implicit Schur complement is only multiplied with: linear_solver must be auto or PCG.");
  if (schur == GRAPHOPT_SCHUR_OFF || !problem.has_schur()) {
    auto [solver, name] = make_solver(pattern, linear_solver);
    return {LinearSystem(std::move(solver)), name, GRAPHOPT_SCHUR_OFF};
  }
  const bool is_free = schur == GRAPHOPT_SCHUR_AUTO && linear_solver == GRAPHOPT_LINEAR_AUTO;
  const double flops = is_free ? elimination_flops(problem, false) : 0.0;
  if (flops > kWorthACount && elimination_flops(problem, true) < 0.5 * flops) {
    auto sparse = std::make_shared<SparseCholesky>(pattern, "auto");
    if (sparse->symbolic().flops < flops)
      return {LinearSystem(std::move(sparse)), GRAPHOPT_CHOLESKY, GRAPHOPT_SCHUR_OFF};
  }
  const bool may_iterate = linear_solver == GRAPHOPT_LINEAR_AUTO || linear_solver == GRAPHOPT_PCG;
  const bool is_implicit = schur == GRAPHOPT_SCHUR_IMPLICIT ||
                           (schur == GRAPHOPT_SCHUR_AUTO && may_iterate && too_large_to_form(problem));
  auto complement = std::make_shared<SchurComplement>(pattern, static_cast<int>(num_kept), !is_implicit);
  if (is_implicit)
    return {LinearSystem(std::make_shared<PcgSolver>(complement), complement), GRAPHOPT_PCG,
            GRAPHOPT_SCHUR_IMPLICIT};
  auto [solver, name] = make_solver(complement->reduced_pattern(), linear_solver);
  return {LinearSystem(std::move(solver), complement), name, GRAPHOPT_SCHUR_EXPLICIT};
}

}  // namespace graphopt::embed
