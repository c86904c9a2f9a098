// Values of many expressions at many points for many parameter sets, and their sums of squares.
#pragma once

#include <algorithm>
#include <functional>

#include "batch/run.h"

namespace graphopt::batch {

// The matrix that all expressions share. Rows of `stride` numbers, a multiple of 64 bytes; beyond num_points
// they repeat the last point.
template <class T>
struct Points {
  const T* data = nullptr;    // (num_columns, stride)
  const T* target = nullptr;  // (stride,) or null: zeros
  std::int64_t num_points = 0, stride = 0;
  int num_columns = 0;

  std::int64_t num_blocks() const { return (num_points + kBlock<T> - 1) / kBlock<T>; }
  int valid(std::int64_t block) const {  // points of a block
    return static_cast<int>(std::min<std::int64_t>(kBlock<T>, num_points - block * kBlock<T>));
  }
};

// Parameter sets of one expression: float64, rows of `stride` numbers of which the first are used.
struct Parameters {
  const double* values = nullptr;
  std::int64_t num_sets = 0;
  std::int64_t stride = 0;
};

// Parameter sets that go through by_parameter together.
inline constexpr int kSets = 128;

// What a thread needs to run one expression.
template <class T>
class Runner {
 public:
  Runner(const Compiled& code, const Points<T>& points);

  // Scalars of up to kSets parameter sets; row k of `values` is set k.
  void set_parameters(const double* values, std::int64_t stride, int num_sets);
  // Go to a block of points: values of data alone.
  void set_block(std::int64_t block);
  // The outputs of a set in this block: valid() numbers each, until the next call.
  void run_set(int set);
  const T* output(std::size_t k);
  // (num_sets, num_scalars) of the last set_parameters
  const T* scalars() const { return scalars_.data(); }
  int valid() const { return valid_; }
  const T* target() const { return target_; }

 private:
  static int rounded(int count) { return (count + Lanes<T>::count - 1) / Lanes<T>::count * Lanes<T>::count; }

  const Compiled& code_;
  const Points<T>& points_;
  Column<T> registers_, parameter_registers_, scalars_, constant_;
  std::vector<T*> vectors_, parameter_vectors_;
  const T* target_ = nullptr;
  int valid_ = 0, lanes_ = 0, set_ = 0;
};

// values[set * num_points + i], or, with points.target, sums[set]: sum over i of (value - target)^2.
template <class T>
void evaluate(const std::vector<Compiled>& codes, const Points<T>& points,
              const std::vector<Parameters>& parameters, T* const* values, double* const* sums);

}  // namespace graphopt::batch
