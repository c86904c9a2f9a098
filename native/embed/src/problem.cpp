#include "problem.h"

#include <algorithm>

#include "error.h"

namespace graphopt::embed {
namespace {

template <class T>
void copy_row(std::vector<T>& to, const std::vector<T>& from, std::size_t row, std::size_t size) {
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(row * size),
            from.begin() + static_cast<std::ptrdiff_t>((row + 1) * size));
}

// Distinct pseudo-random numbers, those of graphopt/problem/independent_set.py.
std::uint64_t scramble(std::uint64_t number) {
  number *= 0x9E3779B97F4A7C15u;
  number ^= number >> 29;
  number *= 0xBF58476D1CE4E5B9u;
  return number ^ number >> 32;
}

// Of marginalized vertices that are free a set in which no two share an edge: smallest scrambled number
// first.
Flags choose_eliminated(const Graph& graph, const std::vector<Group>& groups, const Flags& free) {
  std::vector<std::size_t> first{0};
  for (const VertexSet& set : graph.vertex_sets) first.push_back(first.back() + set.ids.size());
  std::vector<char> wanted(first.back(), 0);
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s)
    for (std::size_t k = 0; k < graph.vertex_sets[s].ids.size(); ++k)
      wanted[first[s] + k] = free[s][k] && graph.vertex_sets[s].marginalized[k] != 0;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // both directions
  for (const Group& group : groups)
    for (std::size_t e = 0; e < static_cast<std::size_t>(group.size); ++e)
      for (std::size_t i = 0; i < group.arity(); ++i)
        for (std::size_t j = 0; j < group.arity(); ++j) {
          const auto number = [&](std::size_t slot) {
            return first[static_cast<std::size_t>(group.vertex_sets[slot])] +
                   static_cast<std::size_t>(group.vertex_rows[e * group.arity() + slot]);
          };
          if (i != j && wanted[number(i)] != 0 && wanted[number(j)] != 0)
            pairs.emplace_back(number(i), number(j));
        }
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < pairs.size(); ++k)
    if (k == 0 || pairs[k].first != pairs[k - 1].first) order.push_back(pairs[k].first);
  std::sort(order.begin(), order.end(),
            [](std::size_t a, std::size_t b) { return scramble(a) < scramble(b); });
  for (const std::size_t one : order)
    if (wanted[one] != 0)
      for (auto at = std::lower_bound(pairs.begin(), pairs.end(), std::make_pair(one, std::size_t{0}));
           at != pairs.end() && at->first == one; ++at)
        wanted[at->second] = 0;
  Flags result;
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s) {
    const std::size_t count = graph.vertex_sets[s].ids.size();
    result.push_back(std::make_unique<bool[]>(count + 1));
    for (std::size_t k = 0; k < count; ++k) result.back()[k] = wanted[first[s] + k] != 0;
  }
  return result;
}

Flags free_vertices(const Graph& graph, const std::vector<Place>& held) {
  Flags free;
  for (const VertexSet& set : graph.vertex_sets) {
    free.push_back(std::make_unique<bool[]>(set.ids.size() + 1));
    for (std::size_t k = 0; k < set.ids.size(); ++k) free.back()[k] = set.fixed[k] == 0;
  }
  for (const Place& place : held)
    free[static_cast<std::size_t>(place.set)][static_cast<std::size_t>(place.row)] = false;
  return free;
}

Group select(const Graph& graph, const EdgeSet& edges, const Flags& free) {
  Group group;
  group.kind = edges.kind;
  const EdgeType& type = *edges.kind.type;
  const std::size_t arity = type.vertices.size(), num_parameters = type.parameters.size();
  std::vector<Place> places(arity);
  for (std::size_t k = 0; k < edges.kernel_width.size(); ++k) {
    bool is_active = false;
    for (std::size_t slot = 0; slot < arity; ++slot) {
      places[slot] = graph.vertex(edges.vertices[k * arity + slot]);
      is_active |=
          free[static_cast<std::size_t>(places[slot].set)][static_cast<std::size_t>(places[slot].row)];
    }
    if (!is_active) continue;
    ++group.size;
    for (const Place& place : places) group.vertex_rows.push_back(static_cast<std::int32_t>(place.row));
    for (std::size_t slot = 0; slot < num_parameters; ++slot)
      group.parameter_rows.push_back(
          static_cast<std::int32_t>(graph.parameter(edges.parameters[k * num_parameters + slot]).row));
    copy_row(group.measurement, edges.measurement, k, static_cast<std::size_t>(type.measurement_dim));
    copy_row(group.information, edges.information, k, static_cast<std::size_t>(type.information_dim()));
    group.width.push_back(edges.kernel_width[k]);
  }
  if (group.size == 0) return group;
  for (std::size_t slot = 0; slot < arity; ++slot)
    group.vertex_sets.push_back(graph.vertex(edges.vertices[slot]).set);
  for (std::size_t slot = 0; slot < num_parameters; ++slot)
    group.parameter_sets.push_back(graph.parameter(edges.parameters[slot]).set);
  const std::size_t num_pairs = arity * (arity + 1) / 2 * static_cast<std::size_t>(group.size);
  group.block_offset.resize(num_pairs);
  group.block_transposed = std::make_unique<bool[]>(num_pairs);
  return group;
}

}  // namespace

std::vector<Group> select_edges(const Graph& graph, int level, const std::vector<Place>& held) {
  const Flags free = free_vertices(graph, held);
  std::vector<Group> groups;
  for (const EdgeSet& edges : graph.edge_sets) {
    if (edges.kind.level != level) continue;
    Group group = select(graph, edges, free);
    if (group.size > 0) groups.push_back(std::move(group));
  }
  return groups;
}

Problem::Problem(const Graph& graph, int level, const std::vector<Place>& held)
    : groups(select_edges(graph, level, held)) {
  choose_free(graph, held);
  make_structure(graph);
  make_linearizer(graph);
}

// Vertices without edges are no unknowns.
void Problem::choose_free(const Graph& graph, const std::vector<Place>& held) {
  free_ = free_vertices(graph, held);
  std::vector<std::vector<char>> used;
  for (const VertexSet& set : graph.vertex_sets) used.emplace_back(set.ids.size(), 0);
  for (const Group& group : groups)
    for (std::size_t k = 0; k < group.vertex_rows.size(); ++k)
      used[static_cast<std::size_t>(group.vertex_sets[k % group.arity()])]
          [static_cast<std::size_t>(group.vertex_rows[k])] = 1;
  for (std::size_t s = 0; s < used.size(); ++s)
    for (std::size_t k = 0; k < used[s].size(); ++k) free_[s][k] = free_[s][k] && used[s][k] != 0;
  eliminated_ = choose_eliminated(graph, groups, free_);
}

void Problem::make_structure(const Graph& graph) {
  std::vector<VertexFlags> flags;
  blocks_.resize(graph.vertex_sets.size());
  offsets_.resize(graph.vertex_sets.size());
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s) {
    const VertexSet& set = graph.vertex_sets[s];
    blocks_[s].assign(set.ids.size(), -1);
    offsets_[s].assign(set.ids.size(), -1);
    flags.push_back({static_cast<std::int64_t>(set.ids.size()), free_[s].get(), eliminated_[s].get(),
                     set.ids.data(), set.type->tangent_dim, blocks_[s].data(), offsets_[s].data()});
  }
  numbering = number_blocks(flags);
  std::vector<EdgeSlots> slots;
  for (Group& group : groups) {
    EdgeSlots one;
    one.size = group.size;
    one.arity = static_cast<int>(group.arity());
    one.rows = group.vertex_rows.data();
    for (const int set : group.vertex_sets)
      one.table.push_back(blocks_[static_cast<std::size_t>(set)].data());
    one.block_offset = group.block_offset.data();
    one.block_transposed = group.block_transposed.get();
    slots.push_back(std::move(one));
  }
  pattern = block_pattern(numbering.dims, slots);
}

void Problem::make_linearizer(const Graph& graph) {
  estimates.resize(graph.vertex_sets.size());
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s) {
    const VertexSet& set = graph.vertex_sets[s];
    const auto count = static_cast<std::int64_t>(set.ids.size());
    estimates[s] = set.estimate;
    if (set.type->encode != nullptr) {
      estimates[s].resize(set.ids.size() * static_cast<std::size_t>(set.type->working_dim));
      vm::run_rows(*set.type->encode, set.estimate.data(), count, estimates[s].data());
    }
    linearizer.add_vertex_set(view(estimates[s].data(), count, set.type->working_dim), set.type->oplus,
                              offsets_[s]);
  }
  known_ = estimates;
  for (const ParameterSet& set : graph.parameter_sets)
    linearizer.add_parameter_set(view<const double>(
        set.values.data(), static_cast<std::int64_t>(set.ids.size()), set.type->storage_dim));
  for (const Group& group : groups) {
    const EdgeType& type = *group.kind.type;
    const int arity = static_cast<int>(group.arity()), num_pairs = arity * (arity + 1) / 2;
    vm::EdgeGroupInput input;
    input.chi2 = type.chi2;
    input.linearize = type.linearize;
    input.kernel = graph.types->kernels()[static_cast<std::size_t>(group.kind.kernel)].program;
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
    linearizer.add_edge_group(std::move(input));
  }
  linearizer.prepare(pattern->values_size(), dim());
}

void Problem::write_back(Graph& graph) {
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s) {
    VertexSet& set = graph.vertex_sets[s];
    const auto from = static_cast<std::size_t>(set.type->working_dim),
               to = static_cast<std::size_t>(set.type->storage_dim);
    for (std::size_t k = 0; k < set.ids.size(); ++k) {
      const double* row = estimates[s].data() + k * from;
      if (std::equal(row, row + from, known_[s].data() + k * from)) continue;
      if (set.type->decode == nullptr)
        std::copy(row, row + from, set.estimate.data() + k * to);
      else
        vm::run_rows(*set.type->decode, row, 1, set.estimate.data() + k * to);
    }
  }
}

double chi2(const Graph& graph, int level) { return Problem(graph, level, {}).linearizer.chi2(); }

}  // namespace graphopt::embed
