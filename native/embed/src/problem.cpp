#include "problem.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "error.h"
#include "linear/block_pattern.h"
#include "linear/block_structure.h"
#include "linear/sparse_cholesky.h"
#include "vm/linearizer.h"
#include "vm/small_loop.h"

namespace graphopt::embed {
namespace {

template <class T>
vm::View<T> view(T* data, std::int64_t rows, int columns) {
  vm::View<T> result;
  result.data = data;
  result.rows = rows;
  result.columns = columns;
  return result;
}

// Edges of a set with a free vertex, by rows instead of ids.
struct Group {
  const EdgeSet* edges = nullptr;
  std::int64_t size = 0;
  std::vector<int> vertex_sets, parameter_sets;
  std::vector<std::int32_t> vertex_rows, parameter_rows;
  std::vector<double> measurement, information, width;
  std::vector<std::int64_t> block_offset;
  std::unique_ptr<bool[]> block_transposed;
};

class Problem {
 public:
  // only_free: edges between fixed vertices are left out.
  Problem(Graph& graph, bool only_free, std::int64_t held) : graph_(graph) {
    choose_free(held);
    for (const EdgeSet& edges : graph_.edge_sets) add_group(edges, only_free);
    make_structure();
    make_linearizer();
  }

  std::int64_t dim() const { return static_cast<std::int64_t>(b_.size()); }
  double chi2() { return linearizer_.chi2(); }

  template <class Method>
  vm::LoopResult run(Method method, const vm::StopRules& rules) {
    const auto pattern =
        std::make_shared<const BlockPattern>(numbering_.dims, pattern_.col_ptr, pattern_.row_idx);
    SparseCholesky cholesky(pattern, "auto");
    std::vector<double> values(static_cast<std::size_t>(pattern->values_size()), 0.0);
    std::vector<std::int64_t> diagonal;
    for (int block = 0; block < pattern->num_blocks(); ++block)
      for (int i = 0; i < pattern->block_dim(block); ++i)
        diagonal.push_back(pattern->value_offset(pattern->diagonal(block)) +
                           i * (pattern->block_dim(block) + 1));
    vm::SmallSystem system;
    system.linearizer = &linearizer_;
    system.factorize = [&](const double* h, const double* damping) { return cholesky.factorize(h, damping); };
    system.substitute = [&](const double* b, double* x) { cholesky.solve(b, x); };
    system.values = view(values.data(), pattern->values_size(), 1);
    system.b = view(b_.data(), dim(), 1);
    system.dx = view(dx_.data(), dim(), 1);
    system.diagonal = view<const std::int64_t>(diagonal.data(), dim(), 1);
    vm::SmallLoop loop(std::move(system));
    return loop.run(method, rules, [] { return false; });
  }

 private:
  void choose_free(std::int64_t held) {
    for (const VertexSet& set : graph_.vertex_sets) {
      const std::size_t count = set.ids.size();
      auto flags = std::make_unique<bool[]>(count + 1);
      for (std::size_t k = 0; k < count; ++k) flags[k] = set.fixed[k] == 0 && set.ids[k] != held;
      free_.push_back(std::move(flags));
      eliminated_.push_back(std::make_unique<bool[]>(count + 1));
      block_.emplace_back(count, -1);
      offset_.emplace_back(count, -1);
    }
  }

  void add_group(const EdgeSet& edges, bool only_free) {
    Group group;
    group.edges = &edges;
    const EdgeType& type = *edges.type;
    const std::size_t arity = type.vertices.size(), num_parameters = type.parameters.size();
    const auto m = static_cast<std::size_t>(type.measurement_dim),
               n = static_cast<std::size_t>(type.information_dim());
    for (std::size_t k = 0; k < edges.kernel_width.size(); ++k) {
      bool is_active = !only_free;
      std::vector<Place> places;
      for (std::size_t slot = 0; slot < arity; ++slot) {
        places.push_back(graph_.vertex(edges.vertices[k * arity + slot]));
        is_active |=
            free_[static_cast<std::size_t>(places[slot].set)][static_cast<std::size_t>(places[slot].row)];
      }
      if (!is_active) continue;
      ++group.size;
      for (const Place& place : places) group.vertex_rows.push_back(static_cast<std::int32_t>(place.row));
      for (std::size_t slot = 0; slot < num_parameters; ++slot)
        group.parameter_rows.push_back(
            static_cast<std::int32_t>(graph_.parameter(edges.parameters[k * num_parameters + slot]).row));
      const auto copy = [](std::vector<double>& to, const std::vector<double>& from, std::size_t at,
                           std::size_t size) {
        to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at * size),
                  from.begin() + static_cast<std::ptrdiff_t>((at + 1) * size));
      };
      copy(group.measurement, edges.measurement, k, m);
      copy(group.information, edges.information, k, n);
      group.width.push_back(edges.kernel_width[k]);
    }
    if (group.size == 0) return;
    for (std::size_t slot = 0; slot < arity; ++slot)
      group.vertex_sets.push_back(graph_.vertex(edges.vertices[slot]).set);
    for (std::size_t slot = 0; slot < num_parameters; ++slot)
      group.parameter_sets.push_back(graph_.parameter(edges.parameters[slot]).set);
    const std::size_t num_pairs = arity * (arity + 1) / 2 * static_cast<std::size_t>(group.size);
    group.block_offset.resize(num_pairs);
    group.block_transposed = std::make_unique<bool[]>(num_pairs);
    groups_.push_back(std::move(group));
  }

  void make_structure() {
    std::vector<VertexFlags> flags;
    for (std::size_t k = 0; k < graph_.vertex_sets.size(); ++k) {
      const VertexSet& set = graph_.vertex_sets[k];
      keep_used(k);
      flags.push_back({static_cast<std::int64_t>(set.ids.size()), free_[k].get(), eliminated_[k].get(),
                       set.ids.data(), set.type->tangent_dim, block_[k].data(), offset_[k].data()});
    }
    numbering_ = number_blocks(flags);
    std::vector<EdgeSlots> slots;
    for (Group& group : groups_) {
      EdgeSlots one;
      one.size = group.size;
      one.arity = static_cast<int>(group.vertex_sets.size());
      one.rows = group.vertex_rows.data();
      for (const int set : group.vertex_sets)
        one.table.push_back(block_[static_cast<std::size_t>(set)].data());
      one.block_offset = group.block_offset.data();
      one.block_transposed = group.block_transposed.get();
      slots.push_back(one);
    }
    pattern_ = block_pattern(numbering_.dims, slots);
    const auto dim = static_cast<std::size_t>(numbering_.offsets.back());
    b_.assign(dim, 0.0);
    dx_.assign(dim, 0.0);
  }

  // Vertices without edges are no unknowns.
  void keep_used(std::size_t set) {
    std::vector<char> used(graph_.vertex_sets[set].ids.size(), 0);
    for (const Group& group : groups_)
      for (std::size_t slot = 0; slot < group.vertex_sets.size(); ++slot)
        if (group.vertex_sets[slot] == static_cast<int>(set))
          for (std::size_t k = slot; k < group.vertex_rows.size(); k += group.vertex_sets.size())
            used[static_cast<std::size_t>(group.vertex_rows[k])] = 1;
    for (std::size_t k = 0; k < used.size(); ++k) free_[set][k] = free_[set][k] && used[k] != 0;
  }

  void make_linearizer() {
    for (std::size_t k = 0; k < graph_.vertex_sets.size(); ++k) {
      VertexSet& set = graph_.vertex_sets[k];
      linearizer_.add_vertex_set(
          view(set.estimate.data(), static_cast<std::int64_t>(set.ids.size()), set.type->storage_dim),
          set.type->oplus, offset_[k]);
    }
    for (const ParameterSet& set : graph_.parameter_sets)
      linearizer_.add_parameter_set(view<const double>(
          set.values.data(), static_cast<std::int64_t>(set.ids.size()), set.type->storage_dim));
    for (const Group& group : groups_) linearizer_.add_edge_group(input_of(group));
    linearizer_.prepare(pattern_.block_ptr.back(), dim());
  }

  vm::EdgeGroupInput input_of(const Group& group) const {
    const EdgeType& type = *group.edges->type;
    const int arity = static_cast<int>(group.vertex_sets.size()), num_pairs = arity * (arity + 1) / 2;
    vm::EdgeGroupInput input;
    input.chi2 = type.chi2;
    input.linearize = type.linearize;
    input.kernel = graph_.types->kernels()[static_cast<std::size_t>(group.edges->kernel)].program;
    input.vertex_sets = group.vertex_sets;
    input.parameter_sets = group.parameter_sets;
    input.vertex_rows = view(group.vertex_rows.data(), group.size, arity);
    input.parameter_rows =
        view(group.parameter_rows.data(), group.size, static_cast<int>(group.parameter_sets.size()));
    input.measurement = view(group.measurement.data(), group.size, type.measurement_dim);
    input.information = view(group.information.data(), group.size, type.information_dim());
    input.kernel_width = view(group.width.data(), group.size, 1);
    input.block_offset = view(group.block_offset.data(), group.size, num_pairs);
    input.block_transposed = view<const bool>(group.block_transposed.get(), group.size, num_pairs);
    return input;
  }

  Graph& graph_;
  std::vector<std::unique_ptr<bool[]>> free_, eliminated_;  // by vertex set
  std::vector<std::vector<std::int64_t>> block_, offset_;
  std::vector<Group> groups_;
  Numbering numbering_;
  Pattern pattern_;
  std::vector<double> b_, dx_;
  vm::Linearizer linearizer_;
};

// The vertex to hold where nothing fixes the whole: no fixed vertex and no edge on a single one. Of those
// with the largest tangent dimension the smallest id; -1: none.
std::int64_t vertex_to_hold(const Graph& graph) {
  for (const EdgeSet& edges : graph.edge_sets)
    if (edges.size() > 0 && edges.type->vertices.size() == 1) return -1;
  std::int64_t best = -1;
  int largest = 0;
  bool any = false;
  for (const VertexSet& set : graph.vertex_sets) {
    if (std::count(set.fixed.begin(), set.fixed.end(), 0) != static_cast<std::ptrdiff_t>(set.fixed.size()))
      return -1;
    for (const std::int64_t id : set.ids)
      if (!any || set.type->tangent_dim > largest || (set.type->tangent_dim == largest && id < best)) {
        best = id;
        largest = set.type->tangent_dim;
        any = true;
      }
  }
  return best;
}

graphopt_termination termination_of(vm::LoopEnding ending) {
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

}  // namespace

double chi2(Graph& graph) { return Problem(graph, false, -1).chi2(); }

graphopt_summary optimize(Graph& graph, const graphopt_options& options) {
  const auto start = std::chrono::steady_clock::now();
  graphopt_summary summary{};
  summary.held_vertex = vertex_to_hold(graph);
  Problem problem(graph, true, summary.held_vertex);
  if (problem.dim() == 0)
    throw Error(GRAPHOPT_INVALID_ARGUMENT,
                "There is nothing to optimize: no edge has a vertex that is not fixed.");
  vm::StopRules rules;
  rules.max_iterations = options.max_num_iterations;
  rules.function_tolerance = options.function_tolerance;
  rules.gradient_tolerance = options.gradient_tolerance;
  rules.step_tolerance = options.step_tolerance;
  vm::LoopResult result;
  if (options.method == GRAPHOPT_GAUSS_NEWTON) {
    result = problem.run(vm::GaussNewton(), rules);
  } else {
    vm::Levenberg levenberg;
    levenberg.initial_lambda = options.initial_lambda;
    result = problem.run(levenberg, rules);
  }
  summary.termination = termination_of(result.ending);
  summary.num_iterations = static_cast<int>(result.steps.size());
  summary.initial_chi2 = result.initial_chi2;
  summary.final_chi2 = result.steps.empty() ? result.initial_chi2 : result.steps.back().chi2;
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace graphopt::embed
