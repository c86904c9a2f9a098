#include <chrono>
#include <cmath>
#include <cstdio>

#include "device_edges.h"
#include "error.h"
#include "linear/pcg.h"
#include "linear/sparse_cholesky.h"
#include "linear_system.h"
#include "vm/small_loop.h"

namespace graphopt::embed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int termination_of(vm::LoopEnding ending) {
  switch (ending) {
    case vm::LoopEnding::kRules:
      return GRAPHOPT_NO_CONVERGENCE;
    case vm::LoopEnding::kConverged:
      return GRAPHOPT_CONVERGENCE;
    case vm::LoopEnding::kNoImprovement:
      return GRAPHOPT_NO_IMPROVEMENT;
    case vm::LoopEnding::kLinearSolverFailure:
      return GRAPHOPT_LINEAR_SOLVER_FAILURE;
    case vm::LoopEnding::kNonFinite:
      return GRAPHOPT_NON_FINITE;
  }
  throw std::logic_error("an ending without a name");
}

// The iterations of one call.
class Run {
 public:
  Run(Problem& problem, vm::Evaluation& edges, LinearSystem& system, const graphopt_options& options,
      graphopt_summary& summary, Clock::time_point start)
      : options_(options),
        summary_(summary),
        start_(start),
        values_(static_cast<std::size_t>(problem.pattern->values_size()), 0.0),
        b_(static_cast<std::size_t>(problem.dim()), 0.0),
        dx_(b_),
        diagonal_(problem.pattern->diagonal_indices()),
        product_(problem.pattern) {
    vm::SmallSystem small;
    small.edges = &edges;
    small.linear = &system;
    small.multiply = [this](const double* h, const double* x, double* y) { product_.multiply(h, x, y); };
    small.values = view(values_.data(), problem.pattern->values_size(), 1);
    small.b = view(b_.data(), problem.dim(), 1);
    small.dx = view(dx_.data(), problem.dim(), 1);
    small.diagonal = view<const std::int64_t>(diagonal_.data(), problem.dim(), 1);
    loop_ = std::make_unique<vm::SmallLoop>(std::move(small));
  }

  template <class Method>
  void go(Method method) {
    vm::StopRules rules;
    rules.max_iterations = options_.max_num_iterations;
    rules.function_tolerance = options_.function_tolerance;
    rules.gradient_tolerance = options_.gradient_tolerance;
    rules.step_tolerance = options_.step_tolerance;
    const vm::LoopResult result = loop_->run_to_end(
        method, rules, [this] { return should_stop(); },
        [this](int, const vm::LoopStep& step) { return tell(step); });
    summary_.initial_chi2 = result.initial_chi2;
    summary_.final_chi2 = result.steps.empty() ? result.initial_chi2 : result.steps.back().chi2;
    summary_.termination = termination_of(result.ending);
    summary_.seconds_evaluating += result.linearize_seconds;
    summary_.seconds_solving += result.solve_seconds;
    if (stop_ != 0 && summary_.termination == GRAPHOPT_NO_CONVERGENCE) summary_.termination = stop_;
  }

 private:
  bool should_stop() {
    if (options_.time_limit > 0.0 && seconds_since(start_) > options_.time_limit && stop_ == 0)
      stop_ = GRAPHOPT_TIME_LIMIT;
    return stop_ != 0;
  }

  bool tell(const vm::LoopStep& step) {
    const graphopt_iteration done{summary_.num_iterations, step.trials, step.chi2,
                                  step.has_lambda ? step.lambda : 0.0, step.seconds};
    ++summary_.num_iterations;
    if (options_.callback != nullptr && options_.callback(&done, options_.callback_data) != 0)
      stop_ = GRAPHOPT_USER_STOP;
    return stop_ == 0;
  }

  const graphopt_options& options_;
  graphopt_summary& summary_;
  const Clock::time_point start_;
  std::vector<double> values_, b_, dx_;
  std::vector<std::int64_t> diagonal_;
  PatternOperator product_;
  std::unique_ptr<vm::SmallLoop> loop_;
  int stop_ = 0;  // a graphopt_termination
};

}  // namespace

graphopt_summary optimize(Graph& graph, const graphopt_options& options) {
  const auto start = Clock::now();
  graphopt_summary summary{};
  std::vector<Place> held;
  if (options.fix == GRAPHOPT_FIX_AUTO) held = gauge(graph, select_edges(graph, options.level, {}));
  summary.num_held_vertices = static_cast<int>(held.size());
  summary.held_vertex = -1;
  if (!held.empty())
    summary.held_vertex = graph.vertex_sets[static_cast<std::size_t>(held.front().set)]
                              .ids[static_cast<std::size_t>(held.front().row)];
  Problem problem(graph, options.level, held);
  if (problem.dim() == 0)
    throw Error(GRAPHOPT_INVALID_ARGUMENT, "There is nothing to optimize: no edge of level " +
                                               std::to_string(options.level) +
                                               " has a vertex that is not fixed.");
  ChosenSystem chosen = make_system(problem, options.linear_solver, options.schur);
  summary.linear_solver = chosen.linear_solver;
  summary.schur = chosen.schur;
  const std::string device = options.device == nullptr ? "cpu" : options.device;
  std::unique_ptr<DeviceEdges> on_device;
  if (device != "cpu") on_device = make_device_edges(device, options.validation != 0, graph, problem);
  std::snprintf(summary.device, sizeof summary.device, "%s", on_device ? on_device->name().c_str() : "cpu");
  vm::Evaluation& edges = on_device ? static_cast<vm::Evaluation&>(*on_device) : problem.linearizer;
  Run run(problem, edges, chosen.system, options, summary, start);
  if (options.method == GRAPHOPT_GAUSS_NEWTON) {
    run.go(vm::GaussNewton());
  } else if (options.method == GRAPHOPT_DOGLEG) {
    run.go(vm::Dogleg());
  } else {
    vm::Levenberg levenberg;
    levenberg.initial_lambda = options.initial_lambda;
    run.go(levenberg);
  }
  problem.write_back(graph);
  summary.seconds = seconds_since(start);
  return summary;
}

void covariances(const Graph& graph, int level, const std::int64_t* ids, std::int64_t count, double* out) {
  Problem problem(graph, level, {});
  std::vector<std::int32_t> blocks;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t block = problem.block(graph.vertex(ids[k]));
    if (block < 0)
      throw Error(GRAPHOPT_INVALID_ARGUMENT, "Vertex " + std::to_string(ids[k]) +
                                                 " is fixed or has no active edge: it has no covariance.");
    blocks.push_back(static_cast<std::int32_t>(block));
  }
  std::vector<double> values(static_cast<std::size_t>(problem.pattern->values_size()), 0.0);
  std::vector<double> b(static_cast<std::size_t>(problem.dim()), 0.0), x(b), scale(b);
  problem.linearizer.linearize(values.data(), problem.pattern->values_size(), b.data(), problem.dim());
  SparseCholesky cholesky(problem.pattern, "auto");
  bool is_regular = cholesky.factorize(values.data(), nullptr);
  if (is_regular) {  // rounding alone may have made the pivots positive: inv(H) D lets a vector grow
    const std::vector<std::int64_t> diagonal = problem.pattern->diagonal_indices();
    double before = 0.0, after = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      scale[i] = std::sqrt(values[static_cast<std::size_t>(diagonal[i])]);
      const double direction =
          std::sin(1.0 + 12.9898 * static_cast<double>(i * i));  // any that is not special
      x[i] = scale[i] * direction;
      before += direction * direction;
    }
    cholesky.solve(x.data(), x.data());
    for (std::size_t i = 0; i < x.size(); ++i) after += scale[i] * x[i] * scale[i] * x[i];
    is_regular = std::sqrt(after) <= 1e12 * std::sqrt(before);
  }
  if (!is_regular)
    throw Error(
        GRAPHOPT_SINGULAR,
        "H is singular, so there are no covariances: a part of the graph can move without changing an error. "
        "Fix a vertex of each connected part (graphopt_set_fixed) or add a prior.");
  cholesky.marginals(blocks, blocks, out);
}

}  // namespace graphopt::embed
