// Many small problems of one structure, each optimized as a whole by one thread: thousands of cameras, points
// or windows in one call.
//
// A worker has a linearizer and a factorization of the structure, made for one thread. It takes one problem
// after the other: refers to its estimates and parameters, packs its measurements, and runs a SmallLoop.
// Which worker takes which problem changes nothing, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "vm/small_loop.h"

namespace graphopt::vm {

// An array of each problem; a stride of 0: all have the same.
template <class T>
struct PerProblem {
  T* data = nullptr;
  std::int64_t stride = 0;

  T* of(std::int64_t problem) const { return data + problem * stride; }
};

struct BatchGroup {
  int number = 0;  // of the linearizer
  PerProblem<const double> measurement, information, kernel_width;
  PerProblem<const bool> mask;  // of the group's edges; null: all take part
};

struct BatchProblems {
  std::int64_t count = 0;
  std::vector<std::pair<int, PerProblem<double>>> estimates;  // vertex set; start, and result where optimized
  std::vector<std::pair<int, PerProblem<const double>>> parameters;
  std::vector<BatchGroup> groups;     // whose data differ; with masks all groups, in their order
  PerProblem<const bool> unobserved;  // (dim) scalars of vertices that no edge of the mask sees, or null
  std::vector<std::pair<std::int64_t, int>> covariances;  // first scalar and size of the blocks wanted
  std::int64_t covariance_size() const;                   // of one problem
};

constexpr std::int8_t kBatchStopped = 5;  // beside the values of LoopEnding

// Arrays (count) of what happened; covariances (count, covariance_size()), row-major blocks, NaN where H does
// not determine them.
struct BatchOutcome {
  double *initial_chi2 = nullptr, *chi2 = nullptr, *lambda = nullptr, *covariances = nullptr;
  std::int32_t *iterations = nullptr, *trials = nullptr;
  std::int8_t* ending = nullptr;
};

class BatchWorker {
 public:
  // system.edges is set by the worker.
  BatchWorker(Linearizer& linearizer, SmallSystem system);
  ~BatchWorker();

  template <class Method>
  void run(Method method, const StopRules& rules, const BatchProblems& problems, std::int64_t problem,
           const BatchOutcome& outcome);

 private:
  class Edges;
  void load(const BatchProblems& problems, std::int64_t problem);
  void choose_edges(const BatchProblems& problems, std::int64_t problem);
  void find_covariances(const BatchProblems& problems, const bool* unobserved, double* out);
  bool is_singular();
  bool has_finite_system() const;

  Linearizer& linearizer_;
  std::unique_ptr<Edges> edges_;
  SmallSystem system_;
  SmallLoop loop_;
  std::vector<double> right_, solution_;
  std::vector<std::vector<char>> masks_;  // that the linearizer has now
};

// All problems, by as many threads as there are workers. False: some were left out because the thread's watch
// asked to stop; their ending is kBatchStopped.
template <class Method>
bool run_batch(const std::vector<BatchWorker*>& workers, const Method& method, const StopRules& rules,
               const BatchProblems& problems, const BatchOutcome& outcome);

}  // namespace graphopt::vm
