// Compiled without contraction to fused multiply-adds, as small_loop.cpp.
#include "vm/problem_batch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt::vm {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kGrowth = 1e12;  // of a vector under inv(H) D: beyond, H is singular up to rounding

template <class T>
View<T> view_of(const PerProblem<T>& of, std::int64_t problem, std::int64_t rows, int columns) {
  return View<T>{of.of(problem), rows, columns, nullptr};
}

double norm(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

}  // namespace

std::int64_t BatchProblems::covariance_size() const {
  std::int64_t size = 0;
  for (const auto& [first, dim] : covariances) size += static_cast<std::int64_t>(dim) * dim;
  return size;
}

// The linearizer; knows how much is on its stack, and gives scalars that no edge sees an equation.
class BatchWorker::Edges final : public Evaluation {
 public:
  Edges(Linearizer& linearizer, View<const std::int64_t> diagonal)
      : linearizer_(linearizer), diagonal_(std::move(diagonal)) {}

  double linearize(double* values, std::int64_t values_size, double* b, std::int64_t b_size) override {
    const double chi2 = linearizer_.linearize(values, values_size, b, b_size);
    if (unobserved_ != nullptr)
      for (std::int64_t i = 0; i < b_size; ++i)
        if (unobserved_[i]) values[diagonal_.data[i]] = 1.0;
    return chi2;
  }
  double chi2() override { return linearizer_.chi2(); }
  void oplus(const double* dx, std::int64_t size) override { linearizer_.oplus(dx, size); }
  void push() override { linearizer_.push(), ++depth_; }
  void pop() override { linearizer_.pop(), --depth_; }
  void discard_top() override { linearizer_.discard_top(), --depth_; }

  void start(const bool* unobserved) { unobserved_ = unobserved; }
  void pop_all() {
    while (depth_ > 0) pop();
  }

 private:
  Linearizer& linearizer_;
  View<const std::int64_t> diagonal_;
  const bool* unobserved_ = nullptr;
  int depth_ = 0;
};

BatchWorker::BatchWorker(Linearizer& linearizer, SmallSystem system)
    : linearizer_(linearizer),
      edges_(std::make_unique<Edges>(linearizer, system.diagonal)),
      system_([&] {
        system.edges = edges_.get();
        system.is_timed = false;
        return std::move(system);
      }()),
      loop_(system_),
      right_(static_cast<std::size_t>(system_.b.size())),
      solution_(right_) {}

BatchWorker::~BatchWorker() = default;

void BatchWorker::choose_edges(const BatchProblems& problems, std::int64_t problem) {
  const std::size_t count = problems.groups.size();
  bool is_same = masks_.size() == count;
  masks_.resize(count);
  std::vector<View<const bool>> views;
  for (std::size_t k = 0; k < count; ++k) {
    const BatchGroup& group = problems.groups[k];
    const std::int64_t rows = linearizer_.group(group.number).num_rows;
    const bool* const mask = group.mask.of(problem);
    is_same = is_same && std::equal(masks_[k].begin(), masks_[k].end(), mask);
    masks_[k].assign(mask, mask + rows);
    views.push_back(View<const bool>{mask, rows, 1, nullptr});
  }
  if (!is_same) linearizer_.choose_edges(views);
}

void BatchWorker::load(const BatchProblems& problems, std::int64_t problem) {
  for (const auto& [set, estimates] : problems.estimates)
    linearizer_.refer_to_estimate(set, estimates.of(problem));
  for (const auto& [set, values] : problems.parameters)
    linearizer_.refer_to_parameters(set, values.of(problem));
  if (!problems.groups.empty() && problems.groups.front().mask.data != nullptr)
    choose_edges(problems, problem);
  for (const BatchGroup& group : problems.groups) {
    const EdgeGroup& g = linearizer_.group(group.number);
    linearizer_.set_edge_data(group.number,
                              view_of(group.measurement, problem, g.num_rows, g.measurement_dim),
                              view_of(group.information, problem, g.num_rows, g.information_dim),
                              view_of(group.kernel_width, problem, g.num_rows, 1));
  }
}

bool BatchWorker::has_finite_system() const {
  for (std::int64_t i = 0; i < system_.b.size(); ++i)
    if (!std::isfinite(system_.b.data[i]) || !std::isfinite(system_.values.data[system_.diagonal.data[i]]))
      return false;
  return true;
}

template <class Method>
void BatchWorker::run(Method method, const StopRules& rules, const BatchProblems& problems,
                      std::int64_t problem, const BatchOutcome& outcome) {
  load(problems, problem);
  const bool* const unobserved =
      problems.unobserved.data == nullptr ? nullptr : problems.unobserved.of(problem);
  edges_->start(std::is_same_v<Method, Levenberg> ? nullptr : unobserved);
  std::int8_t ending = kBatchStopped;
  double initial = kNaN, chi2 = kNaN, lambda = kNaN;
  std::int32_t iterations = 0, trials = 0;
  const auto note = [&](const LoopStep& step) {
    chi2 = step.chi2;
    lambda = step.has_lambda ? step.lambda : kNaN;
    trials += step.trials;
    ++iterations;
    return true;
  };
  try {
    const LoopResult result = loop_.run_to_end(
        method, rules, [] { return stop_requested(); },
        [&](int, const LoopStep& step) { return note(step); });
    initial = result.initial_chi2;
    if (iterations == 0) chi2 = initial;
    const bool is_stopped = result.ending == LoopEnding::kRules && stop_requested();
    ending = is_stopped ? kBatchStopped : static_cast<std::int8_t>(result.ending);
    const bool may_be_non_finite =
        result.ending == LoopEnding::kNoImprovement || result.ending == LoopEnding::kLinearSolverFailure;
    if (may_be_non_finite && !has_finite_system()) ending = static_cast<std::int8_t>(LoopEnding::kNonFinite);
    if (outcome.covariances != nullptr) {
      edges_->start(unobserved);
      double* const out = outcome.covariances + problem * problems.covariance_size();
      std::fill_n(out, problems.covariance_size(), kNaN);
      if (ending != static_cast<std::int8_t>(LoopEnding::kNonFinite))
        find_covariances(problems, unobserved, out);
    }
  } catch (const Stopped&) {
    edges_->pop_all();
  }
  outcome.initial_chi2[problem] = initial;
  outcome.chi2[problem] = chi2;
  outcome.lambda[problem] = lambda;
  outcome.iterations[problem] = iterations;
  outcome.trials[problem] = trials;
  outcome.ending[problem] = ending;
}

// Whether rounding alone made the pivots positive, as `compute_marginals` looks at it.
bool BatchWorker::is_singular() {
  const std::int64_t n = system_.b.size();
  std::vector<double> x(static_cast<std::size_t>(n)), root(x);
  std::uint64_t state = 0x9e3779b97f4a7c15ull;
  for (std::int64_t i = 0; i < n; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x[i] = static_cast<double>(state >> 11) * 0x1p-52 - 1.0;
    root[i] = std::sqrt(system_.values.data[system_.diagonal.data[i]]);
    right_[i] = root[i] * x[i];
  }
  system_.linear->solve_again(right_.data(), solution_.data());
  for (std::int64_t i = 0; i < n; ++i) solution_[i] *= root[i];
  return !(norm(solution_) <= kGrowth * norm(x));
}

void BatchWorker::find_covariances(const BatchProblems& problems, const bool* unobserved, double* out) {
  edges_->linearize(system_.values.data, system_.values.size(), system_.b.data, system_.b.size());
  if (!has_finite_system() || !system_.linear->factorize(system_.values.data, nullptr, system_.b.data) ||
      is_singular())
    return;
  for (const auto& [first, dim] : problems.covariances) {
    if (unobserved != nullptr && unobserved[first]) {
      out += dim * dim;
      continue;
    }
    for (int j = 0; j < dim; ++j) {
      std::fill(right_.begin(), right_.end(), 0.0);
      right_[static_cast<std::size_t>(first + j)] = 1.0;
      system_.linear->solve_again(right_.data(), solution_.data());
      for (int i = 0; i < dim; ++i) out[i * dim + j] = solution_[static_cast<std::size_t>(first + i)];
    }
    for (int j = 0; j < dim; ++j)
      for (int i = 0; i < j; ++i)
        out[i * dim + j] = out[j * dim + i] = 0.5 * (out[i * dim + j] + out[j * dim + i]);
    out += dim * dim;
  }
}

template <class Method>
bool run_batch(const std::vector<BatchWorker*>& workers, const Method& method, const StopRules& rules,
               const BatchProblems& problems, const BatchOutcome& outcome) {
  constexpr std::int64_t kMostAtOnce = 16;
  const std::int64_t num_workers = static_cast<std::int64_t>(workers.size());
  const std::int64_t at_once = std::clamp<std::int64_t>(problems.count / (8 * num_workers), 1, kMostAtOnce);
  std::fill_n(outcome.ending, problems.count, kBatchStopped);
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> is_whole{true};
  const auto share = [&](int t) {
    const ThreadPool::Alone alone;
    for (;;) {
      const std::int64_t begin = next.fetch_add(at_once);
      if (begin >= problems.count) return;
      for (std::int64_t i = begin; i < std::min(begin + at_once, problems.count); ++i) {
        if (stop_requested()) return is_whole.store(false);
        workers[static_cast<std::size_t>(t)]->run(method, rules, problems, i, outcome);
        if (outcome.ending[i] == kBatchStopped) is_whole.store(false);
      }
    }
  };
  ThreadPool::instance().run_shares(static_cast<int>(num_workers), std::ref(share));
  return is_whole.load();
}

template bool run_batch(const std::vector<BatchWorker*>&, const GaussNewton&, const StopRules&,
                        const BatchProblems&, const BatchOutcome&);
template bool run_batch(const std::vector<BatchWorker*>&, const Levenberg&, const StopRules&,
                        const BatchProblems&, const BatchOutcome&);
template bool run_batch(const std::vector<BatchWorker*>&, const Dogleg&, const StopRules&,
                        const BatchProblems&, const BatchOutcome&);

}  // namespace graphopt::vm
