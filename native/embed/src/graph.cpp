#include "graph.h"

#include <algorithm>

#include "error.h"

namespace graphopt::embed {
namespace {

template <class Set, class Type>
int set_of(std::vector<Set>& sets, const Type& type) {
  for (std::size_t k = 0; k < sets.size(); ++k)
    if (sets[k].type == &type) return static_cast<int>(k);
  sets.emplace_back();
  sets.back().type = &type;
  return static_cast<int>(sets.size()) - 1;
}

// Note where new ids are; nothing is noted if one of them is known.
void note(std::unordered_map<std::int64_t, Place>& places, const std::int64_t* ids, std::int64_t count,
          int set, std::int64_t first, const std::string& tag) {
  for (std::int64_t k = 0; k < count; ++k) {
    if (places.emplace(ids[k], Place{set, first + k}).second) continue;
    for (std::int64_t j = 0; j < k; ++j) places.erase(ids[j]);
    throw Error(GRAPHOPT_UNKNOWN_ID,
                tag + " " + std::to_string(ids[k]) + " is there already: ids are used once.");
  }
}

template <class T>
void append(std::vector<T>& to, const T* from, std::int64_t count) {
  to.insert(to.end(), from, from + count);
}

Place find(const std::unordered_map<std::int64_t, Place>& places, std::int64_t id, const char* kind) {
  const auto found = places.find(id);
  if (found == places.end())
    throw Error(GRAPHOPT_UNKNOWN_ID, std::string("There is no ") + kind + " " + std::to_string(id) + ".");
  return found->second;
}

}  // namespace

void Graph::add_vertices(const VertexType& type, const std::int64_t* ids, const double* estimates,
                         std::int64_t count, const std::int64_t* sequence) {
  const int index = set_of(vertex_sets, type);
  VertexSet& set = vertex_sets[static_cast<std::size_t>(index)];
  note(vertex_places_, ids, count, index, static_cast<std::int64_t>(set.ids.size()), type.tag);
  append(set.ids, ids, count);
  set.fixed.resize(set.ids.size(), 0);
  set.marginalized.resize(set.ids.size(), 0);
  for (std::int64_t k = 0; k < count; ++k) {
    set.sequence.push_back(sequence == nullptr ? next_sequence_ : sequence[k]);
    next_sequence_ = std::max(next_sequence_, set.sequence.back() + 1);
  }
  if (estimates != nullptr)
    append(set.estimate, estimates, count * type.storage_dim);
  else
    for (std::int64_t k = 0; k < count; ++k) append(set.estimate, type.identity.data(), type.storage_dim);
}

void Graph::add_parameters(const ParameterType& type, const std::int64_t* ids, const double* values,
                           std::int64_t count) {
  const int index = set_of(parameter_sets, type);
  ParameterSet& set = parameter_sets[static_cast<std::size_t>(index)];
  note(parameter_places_, ids, count, index, static_cast<std::int64_t>(set.ids.size()), type.tag);
  append(set.ids, ids, count);
  append(set.values, values, count * type.storage_dim);
}

void Graph::check_ends(const EdgeType& type, const std::int64_t* vertices,
                       const std::int64_t* parameters) const {
  const auto wrong = [&](const char* kind, std::size_t slot, std::int64_t id, const std::string& is,
                         const std::string& wanted) {
    throw Error(GRAPHOPT_UNKNOWN_ID, type.tag + ": " + kind + " " + std::to_string(slot) + " is " + is + " " +
                                         std::to_string(id) + ", expected a " + wanted + ".");
  };
  for (std::size_t slot = 0; slot < type.vertices.size(); ++slot) {
    const auto& is = *vertex_sets[static_cast<std::size_t>(vertex(vertices[slot]).set)].type;
    if (&is != type.vertices[slot]) wrong("vertex", slot, vertices[slot], is.tag, type.vertices[slot]->tag);
    if (std::count(vertices, vertices + slot, vertices[slot]) > 0)
      throw Error(GRAPHOPT_INVALID_ARGUMENT,
                  type.tag + " has vertex " + std::to_string(vertices[slot]) + " twice.");
  }
  for (std::size_t slot = 0; slot < type.parameters.size(); ++slot) {
    const auto& is = *parameter_sets[static_cast<std::size_t>(parameter(parameters[slot]).set)].type;
    if (&is != type.parameters[slot])
      wrong("parameter", slot, parameters[slot], is.tag, type.parameters[slot]->tag);
  }
}

void Graph::add_edges(const EdgeKind& kind, const EdgeRows& rows) {
  const std::size_t arity = kind.type->vertices.size(), num_parameters = kind.type->parameters.size();
  for (std::size_t k = 0; k < rows.kernel_width.size(); ++k)
    check_ends(*kind.type, rows.vertices.data() + k * arity, rows.parameters.data() + k * num_parameters);
  const auto found =
      std::find_if(edge_sets.begin(), edge_sets.end(), [&](const EdgeSet& one) { return one.kind == kind; });
  EdgeSet& set = found != edge_sets.end() ? *found : edge_sets.emplace_back();
  set.kind = kind;
  const auto join = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  join(set.vertices, rows.vertices);
  join(set.parameters, rows.parameters);
  join(set.measurement, rows.measurement);
  join(set.information, rows.information);
  join(set.kernel_width, rows.kernel_width);
}

void Graph::set_flag(std::vector<char> VertexSet::*flag, const std::int64_t* ids, std::int64_t count,
                     bool value) {
  for (std::int64_t k = 0; k < count; ++k) vertex(ids[k]);
  for (std::int64_t k = 0; k < count; ++k) {
    const Place place = vertex(ids[k]);
    (vertex_sets[static_cast<std::size_t>(place.set)].*flag)[static_cast<std::size_t>(place.row)] =
        value ? 1 : 0;
  }
}

void Graph::set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed) {
  set_flag(&VertexSet::fixed, ids, count, fixed);
}

void Graph::set_marginalized(const std::int64_t* ids, std::int64_t count, bool marginalized) {
  set_flag(&VertexSet::marginalized, ids, count, marginalized);
}

Place Graph::vertex(std::int64_t id) const { return find(vertex_places_, id, "vertex"); }
Place Graph::parameter(std::int64_t id) const { return find(parameter_places_, id, "parameter"); }

}  // namespace graphopt::embed
