// Which vertices to hold so that the answer is determined: graphopt/problem/gauge.py says which and why.
#include "graph/gauge.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "graph/components.h"
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
  const auto is_free = [&](std::size_t number) {
    return set_of(number).fixed[static_cast<std::size_t>(places[number].row)] == 0;
  };
  const auto count = static_cast<std::int64_t>(places.size());
  std::vector<std::int64_t> part(places.size());
  Components components(part.data(), count);
  std::vector<char> active(places.size(), 0), touched(places.size(), 0);
  for (const Group& group : groups)
    for (std::size_t e = 0; e < static_cast<std::size_t>(group.size); ++e) {
      std::vector<std::size_t> moving;
      for (std::size_t slot = 0; slot < group.arity(); ++slot) {
        const std::size_t number = first[static_cast<std::size_t>(group.vertex_sets[slot])] +
                                   static_cast<std::size_t>(group.vertex_rows[e * group.arity() + slot]);
        if (is_free(number)) moving.push_back(number);
      }
      const bool is_absolute = group.arity() == 1 || moving.size() < group.arity();
      for (const std::size_t number : moving) {
        active[number] = 1;
        touched[number] |= is_absolute ? 1 : 0;
        components.join(static_cast<std::int64_t>(number), static_cast<std::int64_t>(moving.front()));
      }
    }
  components.flatten();
  const auto is_held = std::make_unique<bool[]>(places.size());
  std::vector<std::int64_t> dims(places.size());
  for (std::size_t k = 0; k < places.size(); ++k) {
    dims[k] = set_of(k).type->tangent_dim;
    if (active[k] == 0) {
      part[k] = -1;
    } else {
      is_held[static_cast<std::size_t>(part[k])] |= touched[k] != 0;
    }
  }
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
  std::vector<std::int64_t> vertices =
      gauge_of_parts(ranked.data(), part.data(), dims.data(), count, is_held.get(), count);
  std::sort(vertices.begin(), vertices.end());  // -1: a part that is held
  std::vector<Place> chosen;
  for (const std::int64_t k : vertices) {
    if (k >= 0 && set_of(static_cast<std::size_t>(k)).type->is_pose)
      chosen.push_back(places[static_cast<std::size_t>(k)]);
  }
  return chosen;
}

}  // namespace graphopt::embed
