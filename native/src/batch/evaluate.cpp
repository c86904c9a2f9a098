#include "batch/evaluate.h"

#include <algorithm>
#include <memory>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt::batch {
namespace {

constexpr std::int64_t kBlocksOfItem = 64;
constexpr int kLeastShares = 256;  // so that no thread waits long for another's last one

// One expression, some parameter sets, some blocks: what one thread does at a time. They depend on sizes
// only, so that sums do not depend on the number of threads.
struct Item {
  int expression = 0;
  std::int64_t first_set = 0, first_block = 0;
};

}  // namespace

template <class T>
Runner<T>::Runner(const Compiled& code, const Points<T>& points)
    : code_(code),
      points_(points),
      registers_(static_cast<std::size_t>(code.num_registers) * kBlock<T>),
      parameter_registers_(static_cast<std::size_t>(code.num_parameters + code.num_parameter_registers) *
                           kSets),
      scalars_(static_cast<std::size_t>(std::max(1, code.num_scalars())) * kSets),
      constant_(kBlock<T>) {
  static_assert(kSets % Lanes<T>::count == 0, "parameter sets are lanes");
  vectors_.resize(static_cast<std::size_t>(code.num_columns + code.num_registers));
  for (int k = 0; k < code.num_registers; ++k)
    vectors_[static_cast<std::size_t>(code.num_columns + k)] = registers_.data() + k * kBlock<T>;
  for (int k = 0; k < code.num_parameters + code.num_parameter_registers; ++k)
    parameter_vectors_.push_back(parameter_registers_.data() + k * kSets);
  for (int set = 0; set < kSets; ++set)
    for (std::size_t k = 0; k < code.constants.size(); ++k)
      scalars_[static_cast<std::size_t>(set * code.num_scalars()) + k] = static_cast<T>(code.constants[k]);
}

template <class T>
void Runner<T>::set_parameters(const double* values, std::int64_t stride, int num_sets) {
  const int lanes = rounded(num_sets), num_parameters = code_.num_parameters;
  for (int j = 0; j < num_parameters; ++j)
    for (int set = 0; set < lanes; ++set)
      parameter_vectors_[static_cast<std::size_t>(j)][set] =
          static_cast<T>(values[std::min(set, num_sets - 1) * stride + j]);
  run<T>(code_.by_parameter, parameter_vectors_.data(), scalars_.data(), lanes);
  for (std::size_t k = 0; k < code_.shared.size(); ++k) {
    const T* const source = parameter_vectors_[code_.shared[k]];
    T* const to = scalars_.data() + code_.constants.size() + k;
    for (int set = 0; set < num_sets; ++set) to[set * code_.num_scalars()] = source[set];
  }
}

template <class T>
void Runner<T>::set_block(std::int64_t block) {
  valid_ = points_.valid(block);
  lanes_ = rounded(valid_);
  const std::int64_t first = block * kBlock<T>;
  for (int k = 0; k < points_.num_columns; ++k)
    vectors_[static_cast<std::size_t>(k)] = const_cast<T*>(points_.data) + k * points_.stride + first;
  target_ = points_.target == nullptr ? nullptr : points_.target + first;
  run<T>(code_.by_data, vectors_.data(), scalars_.data(), lanes_);
}

template <class T>
void Runner<T>::run_set(int set) {
  set_ = set;
  run<T>(code_.by_both, vectors_.data(), scalars_.data() + set * code_.num_scalars(), lanes_);
}

template <class T>
const T* Runner<T>::output(std::size_t k) {
  const Operand& place = code_.outputs[k];
  if (!place.is_scalar) return vectors_[place.index];
  std::fill_n(constant_.data(), lanes_,
              scalars_[static_cast<std::size_t>(set_ * code_.num_scalars()) + place.index]);
  return constant_.data();
}

namespace {

template <class T>
double square_sum(const T* values, const T* target, int count) {
  alignas(64) T difference[kBlock<T>];
  for (int i = 0; i < count; ++i) difference[i] = values[i] - target[i];
  return dot<T>(difference, difference, count);
}

std::vector<Item> items_of(const std::vector<Parameters>& parameters, std::int64_t num_blocks) {
  std::vector<Item> items;
  for (std::size_t e = 0; e < parameters.size(); ++e)
    for (std::int64_t set = 0; set < parameters[e].num_sets; set += kSets)
      for (std::int64_t block = 0; block < num_blocks; block += kBlocksOfItem)
        items.push_back({static_cast<int>(e), set, block});
  return items;
}

template <class T>
void evaluate_item(const Item& item, const Compiled& code, const Points<T>& points,
                   const Parameters& parameters, T* values, double* sums) {
  Runner<T> runner(code, points);
  const int num_sets = static_cast<int>(std::min<std::int64_t>(kSets, parameters.num_sets - item.first_set));
  runner.set_parameters(parameters.values + item.first_set * parameters.stride, parameters.stride, num_sets);
  const std::int64_t end = std::min(points.num_blocks(), item.first_block + kBlocksOfItem);
  for (std::int64_t block = item.first_block; block < end; ++block) {
    runner.set_block(block);
    for (int set = 0; set < num_sets; ++set) {
      runner.run_set(set);
      const T* const result = runner.output(0);
      if (sums != nullptr)
        sums[set] += square_sum(result, runner.target(), runner.valid());
      else
        std::copy_n(result, runner.valid(),
                    values + (item.first_set + set) * points.num_points + block * kBlock<T>);
    }
  }
}

}  // namespace

template <class T>
void evaluate(const std::vector<Compiled>& codes, const Points<T>& points,
              const std::vector<Parameters>& parameters, T* const* values, double* const* sums) {
  const std::vector<Item> items = items_of(parameters, points.num_blocks());
  const auto count = static_cast<std::int64_t>(items.size());
  std::vector<double> parts(points.target == nullptr ? 0 : static_cast<std::size_t>(count) * kSets, 0.0);
  const int shares = static_cast<int>(std::min<std::int64_t>(count, kLeastShares));
  const auto task = [&](int share) {
    std::int64_t begin, end;
    partition(count, share, shares, begin, end);
    for (std::int64_t k = begin; k < end && !stop_requested(); ++k) {
      const Item& item = items[static_cast<std::size_t>(k)];
      const auto e = static_cast<std::size_t>(item.expression);
      double* const part = parts.empty() ? nullptr : parts.data() + k * kSets;
      evaluate_item<T>(item, codes[e], points, parameters[e], values == nullptr ? nullptr : values[e], part);
    }
  };
  if (shares > 0) ThreadPool::instance().run_shares(shares, std::ref(task));
  throw_if_stopped();
  for (std::int64_t k = 0; k < count && sums != nullptr; ++k) {
    const Item& item = items[static_cast<std::size_t>(k)];
    const Parameters& of = parameters[static_cast<std::size_t>(item.expression)];
    double* const to = sums[item.expression] + item.first_set;
    const std::int64_t num_sets = std::min<std::int64_t>(kSets, of.num_sets - item.first_set);
    for (std::int64_t set = 0; set < num_sets; ++set)
      to[set] = (item.first_block == 0 ? 0.0 : to[set]) + parts[static_cast<std::size_t>(k * kSets + set)];
  }
}

template class Runner<float>;
template class Runner<double>;
template void evaluate<float>(const std::vector<Compiled>&, const Points<float>&,
                              const std::vector<Parameters>&, float* const*, double* const*);
template void evaluate<double>(const std::vector<Compiled>&, const Points<double>&,
                               const std::vector<Parameters>&, double* const*, double* const*);

}  // namespace graphopt::batch
