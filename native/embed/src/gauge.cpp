// Which vertices to hold so that the answer is determined: graphopt/problem/gauge.py says which and why.
#include "graph/gauge.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "edges/parts.h"
#include "edges/scan.h"
#include "problem.h"

namespace graphopt::embed {

std::vector<Place> gauge(const Graph& graph, const std::vector<Group>& groups) {
  std::vector<std::size_t> first{0};
  std::vector<Place> places;
  std::vector<std::int64_t> sequence;
  for (std::size_t s = 0; s < graph.vertex_sets.size(); ++s) {
    const VertexSet& set = graph.vertex_sets[s];
    first.push_back(first.back() + set.ids.size());
    for (std::size_t k = 0; k < set.ids.size(); ++k)
      places.push_back({static_cast<int>(s), static_cast<std::int64_t>(k)});
    sequence.insert(sequence.end(), set.sequence.begin(), set.sequence.end());
  }
  const auto set_of = [&](std::size_t number) -> const VertexSet& {
    return graph.vertex_sets[static_cast<std::size_t>(places[number].set)];
  };
  const auto count = static_cast<std::int64_t>(places.size());
  const auto taken = std::make_unique<bool[]>(places.size());  // active, not fixed
  std::vector<edges::EdgeRows> edge_sets;
  for (const Group& group : groups) {
    std::vector<std::int64_t> first_of_slot;
    for (std::size_t slot = 0; slot < group.arity(); ++slot) {
      const std::size_t start = first[static_cast<std::size_t>(group.vertex_sets[slot])];
      edges::mark(group.vertex_rows.data() + slot, static_cast<int>(group.arity()), group.size,
                  taken.get() + start);
      first_of_slot.push_back(static_cast<std::int64_t>(start));
    }
    edge_sets.push_back({group.vertex_rows.data(), group.size, first_of_slot});
  }
  std::vector<std::int64_t> dims(places.size()), part(places.size());
  for (std::size_t k = 0; k < places.size(); ++k) {
    dims[k] = set_of(k).type->tangent_dim;
    if (set_of(k).fixed[static_cast<std::size_t>(places[k].row)] != 0) taken[k] = false;
  }
  const std::vector<bool> held = edges::connected_parts(taken.get(), count, edge_sets, part.data());
  const auto is_held = std::make_unique<bool[]>(held.size());
  std::copy(held.begin(), held.end(), is_held.get());
  std::vector<std::int64_t> order(places.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return sequence[static_cast<std::size_t>(a)] < sequence[static_cast<std::size_t>(b)];
  });
  std::vector<std::int64_t> ids;
  for (const std::int64_t k : order) {
    const Place& place = places[static_cast<std::size_t>(k)];
    ids.push_back(set_of(static_cast<std::size_t>(k)).ids[static_cast<std::size_t>(place.row)]);
  }
  std::vector<std::int64_t> ranked = iteration_order(ids.data(), count);
  for (std::int64_t& position : ranked) position = order[static_cast<std::size_t>(position)];
  std::vector<std::int64_t> vertices = gauge_of_parts(ranked.data(), part.data(), dims.data(), count,
                                                      is_held.get(), static_cast<std::int64_t>(held.size()));
  std::sort(vertices.begin(), vertices.end());  // -1: a part that is held
  std::vector<Place> chosen;
  for (const std::int64_t k : vertices) {
    if (k >= 0 && set_of(static_cast<std::size_t>(k)).type->is_pose)
      chosen.push_back(places[static_cast<std::size_t>(k)]);
  }
  return chosen;
}

}  // namespace graphopt::embed
