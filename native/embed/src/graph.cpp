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
                         std::int64_t count) {
  const int index = set_of(vertex_sets, type);
  VertexSet& set = vertex_sets[static_cast<std::size_t>(index)];
  note(vertex_places_, ids, count, index, static_cast<std::int64_t>(set.ids.size()), type.tag);
  append(set.ids, ids, count);
  set.fixed.resize(set.ids.size(), 0);
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

void Graph::add_edges(const EdgeType& type, const std::int64_t* vertices, const std::int64_t* parameters,
                      const double* measurements, const double* information, int kernel,
                      const double* kernel_width, std::int64_t count) {
  const auto arity = static_cast<std::int64_t>(type.vertices.size());
  const auto num_parameters = static_cast<std::int64_t>(type.parameters.size());
  for (std::int64_t k = 0; k < count; ++k)
    check_ends(type, vertices + k * arity, parameters + k * num_parameters);
  const auto found = std::find_if(edge_sets.begin(), edge_sets.end(), [&](const EdgeSet& one) {
    return one.type == &type && one.kernel == kernel;
  });
  EdgeSet& set = found != edge_sets.end() ? *found : edge_sets.emplace_back();
  set.type = &type;
  set.kernel = kernel;
  append(set.vertices, vertices, count * arity);
  if (num_parameters > 0) append(set.parameters, parameters, count * num_parameters);
  append(set.measurement, measurements, count * type.measurement_dim);
  append(set.information, information, count * type.information_dim());
  append(set.kernel_width, kernel_width, count);
}

void Graph::set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed) {
  for (std::int64_t k = 0; k < count; ++k) vertex(ids[k]);
  for (std::int64_t k = 0; k < count; ++k) {
    const Place place = vertex(ids[k]);
    vertex_sets[static_cast<std::size_t>(place.set)].fixed[static_cast<std::size_t>(place.row)] =
        fixed ? 1 : 0;
  }
}

Place Graph::vertex(std::int64_t id) const { return find(vertex_places_, id, "vertex"); }
Place Graph::parameter(std::int64_t id) const { return find(parameter_places_, id, "parameter"); }

}  // namespace graphopt::embed
