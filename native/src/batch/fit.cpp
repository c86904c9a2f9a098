#include "batch/fit.h"

#include <algorithm>
#include <limits>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt::batch {
namespace {

constexpr double kFirstDamping = 1e-3, kLargestDamping = 1e16;
constexpr double kLeastGain = 1e-4;  // of the predicted decrease, for a step to be taken
constexpr int kMostShares = 1024;

// r'r, J'r and the upper triangle of J'J by rows.
struct Sums {
  double square = 0.0;
  std::vector<double> gradient, normal;

  explicit Sums(int n)
      : gradient(static_cast<std::size_t>(n), 0.0), normal(static_cast<std::size_t>(n * (n + 1) / 2), 0.0) {}
  void clear() {
    square = 0.0;
    std::fill(gradient.begin(), gradient.end(), 0.0);
    std::fill(normal.begin(), normal.end(), 0.0);
  }
  bool is_finite() const {
    const auto finite = [](double x) { return std::isfinite(x); };
    return finite(square) && std::all_of(gradient.begin(), gradient.end(), finite) &&
           std::all_of(normal.begin(), normal.end(), finite);
  }
};

// x of (N + lambda D) x = -g by Cholesky; false: not positive definite.
bool solve(const Sums& sums, const std::vector<double>& scale, double lambda, std::vector<double>& x) {
  const std::size_t n = sums.gradient.size();
  std::vector<double> l(n * n);
  for (std::size_t i = 0, k = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j, ++k)
      l[j * n + i] = sums.normal[k] + (i == j ? lambda * scale[i] : 0.0);
  for (std::size_t j = 0; j < n; ++j) {
    double pivot = l[j * n + j];
    const double least = pivot * std::numeric_limits<double>::epsilon();
    for (std::size_t k = 0; k < j; ++k) pivot -= l[j * n + k] * l[j * n + k];
    if (!(pivot > least) || !std::isfinite(pivot)) return false;
    l[j * n + j] = std::sqrt(pivot);
    for (std::size_t i = j + 1; i < n; ++i) {
      double sum = l[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = sum / l[j * n + j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    double sum = -sums.gradient[i];
    for (std::size_t k = 0; k < i; ++k) sum -= l[i * n + k] * x[k];
    x[i] = sum / l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) x[i] -= l[k * n + i] * x[k];
    x[i] /= l[i * n + i];
  }
  return true;
}

// The search from one start, without the evaluations.
class Search {
 public:
  Search(const double* start, int n, const FitOptions& options)
      : trial(start, start + n),
        point_(trial),
        best_(n),
        scale_(trial.size()),
        step_(trial.size()),
        options_(options) {}

  std::vector<double> trial;  // where to evaluate next

  // Take the sums at `trial`; false: finished, see status.
  bool take(const Sums& sums, double epsilon) {
    if (iterations_ < 0) return start(sums);
    const bool is_better = sums.is_finite() && sums.square < best_.square &&
                           best_.square - sums.square >= kLeastGain * predicted_;
    if (!is_better) {
      // what is left to gain is rounding
      if (predicted_ <= 8.0 * epsilon * best_.square) return finish(FitStatus::kConverged);
      return next(lambda_ * growth_, growth_ * 2.0);
    }
    const double decrease = best_.square - sums.square, ratio = decrease / predicted_;
    const bool is_small = decrease <= options_.function_tolerance * best_.square &&
                          predicted_ <= options_.function_tolerance * best_.square && ratio <= 2.0;
    const bool is_short = scaled_length(step_) <= options_.parameter_tolerance * scaled_length(trial);
    accept(sums);
    if (is_small || is_short || is_flat()) return finish(FitStatus::kConverged);
    const double bend = 2.0 * ratio - 1.0;
    return next(lambda_ * std::max(1.0 / 3.0, 1.0 - bend * bend * bend), 2.0);
  }

  void store(FitResult result, std::int64_t set) const {
    std::copy(point_.begin(), point_.end(), result.parameters + set * result.stride);
    result.sums[set] = best_.square;
    result.status[set] = static_cast<std::int8_t>(status_);
    result.iterations[set] = std::max(0, iterations_);
  }

 private:
  bool start(const Sums& sums) {
    iterations_ = 0;
    accept(sums);
    if (!sums.is_finite()) return finish(FitStatus::kNonFinite);
    if (is_flat()) return finish(FitStatus::kConverged);
    return next(kFirstDamping, 2.0);
  }

  void accept(const Sums& sums) {
    point_ = trial;
    best_ = sums;
    for (std::size_t i = 0, k = 0; i < scale_.size(); k += scale_.size() - i, ++i)
      scale_[i] = std::max(scale_[i], best_.normal[k]);
  }

  // The gradient vanishes beside the residual and the columns of J.
  bool is_flat() const {
    double largest = 0.0;
    for (std::size_t i = 0, k = 0; i < scale_.size(); k += scale_.size() - i, ++i)
      if (best_.normal[k] > 0.0)
        largest = std::max(largest, std::fabs(best_.gradient[i]) / std::sqrt(best_.normal[k]));
    return best_.square == 0.0 || largest <= options_.gradient_tolerance * std::sqrt(best_.square);
  }

  double scaled_length(const std::vector<double>& x) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += scale_[i] * x[i] * x[i];
    return std::sqrt(sum);
  }

  bool next(double lambda, double growth) {
    lambda_ = lambda;
    growth_ = growth;
    if (iterations_ == options_.max_num_iterations) return finish(FitStatus::kMaxIterations);
    std::vector<double> scale = scale_;
    for (double& s : scale) s = s > 0.0 ? s : 1.0;  // a parameter without influence stays where it is
    while (!solve(best_, scale, lambda_, step_)) {
      lambda_ *= growth_;
      growth_ *= 2.0;
      if (!(lambda_ < kLargestDamping)) return finish(FitStatus::kNoDecrease);
    }
    if (!(lambda_ < kLargestDamping)) return finish(FitStatus::kNoDecrease);
    predicted_ = 0.0;  // F(point) - model(point + step) = step' (lambda D step - g)
    for (std::size_t i = 0; i < step_.size(); ++i)
      predicted_ += step_[i] * (lambda_ * scale[i] * step_[i] - best_.gradient[i]);
    for (std::size_t i = 0; i < step_.size(); ++i) trial[i] = point_[i] + step_[i];
    ++iterations_;
    return true;
  }

  bool finish(FitStatus status) {
    status_ = status;
    return false;
  }

  std::vector<double> point_;
  Sums best_;
  std::vector<double> scale_, step_;
  const FitOptions& options_;
  double lambda_ = 0.0, growth_ = 2.0, predicted_ = 0.0;
  int iterations_ = -1;
  FitStatus status_ = FitStatus::kMaxIterations;
};

// Add the block that `runner` has just computed.
template <class T>
void add_block(Runner<T>& runner, int n, Column<T>& rows, Sums& sums) {
  const int count = runner.valid();
  const auto row = [&](int k) { return rows.data() + k * kBlock<T>; };
  const T *const value = runner.output(0), *const target = runner.target();
  for (int i = 0; i < count; ++i) row(0)[i] = target == nullptr ? value[i] : value[i] - target[i];
  for (int j = 0; j < n; ++j) std::copy_n(runner.output(static_cast<std::size_t>(j + 1)), count, row(j + 1));
  sums.square += dot<T>(row(0), row(0), count);
  for (int j = 0, k = 0; j < n; ++j) {
    sums.gradient[static_cast<std::size_t>(j)] += dot<T>(row(0), row(j + 1), count);
    for (int i = j; i < n; ++i, ++k)
      sums.normal[static_cast<std::size_t>(k)] += dot<T>(row(j + 1), row(i + 1), count);
  }
}

// All searches of up to kSets starts go together: values of data alone are computed once for all.
template <class T>
void fit_some(const Compiled& code, const Points<T>& points, const Parameters& starts, std::int64_t first,
              const FitOptions& options, const FitResult& result) {
  const int n = code.num_parameters;
  const int num_sets = static_cast<int>(std::min<std::int64_t>(kSets, starts.num_sets - first));
  std::vector<Search> searches;
  for (int set = 0; set < num_sets; ++set)
    searches.emplace_back(starts.values + (first + set) * starts.stride, n, options);
  std::vector<int> active(static_cast<std::size_t>(num_sets));
  for (int set = 0; set < num_sets; ++set) active[static_cast<std::size_t>(set)] = set;
  Runner<T> runner(code, points);
  Column<T> rows(static_cast<std::size_t>(n + 1) * kBlock<T>);
  std::vector<Sums> sums(static_cast<std::size_t>(num_sets), Sums(n));
  std::vector<double> trials;
  while (!active.empty() && !stop_requested()) {
    trials.clear();
    for (const int set : active) {
      const auto& trial = searches[static_cast<std::size_t>(set)].trial;
      trials.insert(trials.end(), trial.begin(), trial.end());
    }
    for (Sums& one : sums) one.clear();
    runner.set_parameters(trials.data(), n, static_cast<int>(active.size()));
    for (std::int64_t block = 0; block < points.num_blocks(); ++block) {
      runner.set_block(block);
      for (std::size_t k = 0; k < active.size(); ++k) {
        runner.run_set(static_cast<int>(k));
        add_block(runner, n, rows, sums[k]);
      }
    }
    std::vector<int> left;
    for (std::size_t k = 0; k < active.size(); ++k)
      if (searches[static_cast<std::size_t>(active[k])].take(sums[k], std::numeric_limits<T>::epsilon()))
        left.push_back(active[k]);
    active = std::move(left);
  }
  for (int set = 0; set < num_sets; ++set) searches[static_cast<std::size_t>(set)].store(result, first + set);
}

}  // namespace

template <class T>
void fit(const std::vector<Compiled>& codes, const Points<T>& points, const std::vector<Parameters>& starts,
         const FitOptions& options, const std::vector<FitResult>& results) {
  std::vector<std::pair<std::size_t, std::int64_t>> items;  // expression, first set
  for (std::size_t e = 0; e < codes.size(); ++e)
    for (std::int64_t set = 0; set < starts[e].num_sets; set += kSets) items.emplace_back(e, set);
  const int shares = static_cast<int>(std::min<std::size_t>(items.size(), kMostShares));
  const auto task = [&](int share) {
    std::int64_t begin, end;
    partition(static_cast<std::int64_t>(items.size()), share, shares, begin, end);
    for (std::int64_t k = begin; k < end && !stop_requested(); ++k) {
      const auto [e, first] = items[static_cast<std::size_t>(k)];
      fit_some<T>(codes[e], points, starts[e], first, options, results[e]);
    }
  };
  if (shares > 0) ThreadPool::instance().run_shares(shares, std::ref(task));
  throw_if_stopped();
}

template void fit<float>(const std::vector<Compiled>&, const Points<float>&, const std::vector<Parameters>&,
                         const FitOptions&, const std::vector<FitResult>&);
template void fit<double>(const std::vector<Compiled>&, const Points<double>&, const std::vector<Parameters>&,
                          const FitOptions&, const std::vector<FitResult>&);

}  // namespace graphopt::batch
