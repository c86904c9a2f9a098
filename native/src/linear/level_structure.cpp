#include "linear/level_structure.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace graphopt {
namespace {

// Values by key.
struct Lists {
  Lists(const std::vector<std::int64_t>& key, const std::vector<std::int64_t>& value, std::size_t num_keys)
      : first(num_keys + 1, 0), values(key.size()) {
    for (const std::int64_t k : key) ++first[static_cast<std::size_t>(k) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (std::size_t i = 0; i < key.size(); ++i)
      values[static_cast<std::size_t>(next[static_cast<std::size_t>(key[i])]++)] = value[i];
  }

  std::int64_t count(std::int64_t key) const { return first[key + 1] - first[key]; }

  std::vector<std::int64_t> first, values;
};

// A search over one component at a time; what it has seen stays seen.
class Search {
 public:
  Search(const Lists& places_of, const Lists& vertices_at)
      : places_of_(places_of),
        vertices_at_(vertices_at),
        level_(places_of.first.size() - 1, -1),
        seen_(vertices_at.first.size() - 1, 0) {}

  bool has_seen(std::int64_t vertex) const { return level_[vertex] >= 0; }
  std::int64_t level(std::int64_t vertex) const { return level_[vertex]; }

  // Vertices by ascending level, the root first.
  std::vector<std::int64_t> from(std::int64_t root) {
    std::vector<std::int64_t> queue{root};
    level_[root] = 0;
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const std::int64_t v = queue[at];
      for (std::int64_t k = places_of_.first[v]; k < places_of_.first[v + 1]; ++k) {
        const std::int64_t place = places_of_.values[k];
        if (seen_[place] != 0) continue;
        seen_[place] = 1;
        for (std::int64_t i = vertices_at_.first[place]; i < vertices_at_.first[place + 1]; ++i) {
          const std::int64_t u = vertices_at_.values[i];
          if (level_[u] >= 0) continue;
          level_[u] = level_[v] + 1;
          queue.push_back(u);
        }
      }
    }
    return queue;
  }

 private:
  const Lists& places_of_;
  const Lists& vertices_at_;
  std::vector<std::int64_t> level_;
  std::vector<std::uint8_t> seen_;
};

}  // namespace

std::vector<std::vector<double>> level_widths(const std::vector<std::int64_t>& place,
                                              const std::vector<std::int64_t>& vertex,
                                              const std::vector<std::uint8_t>& taken,
                                              const std::vector<std::int32_t>& dims) {
  const std::int64_t last_place = place.empty() ? -1 : *std::max_element(place.begin(), place.end());
  const Lists places_of(vertex, place, taken.size()),
      vertices_at(place, vertex, static_cast<std::size_t>(last_place + 1));
  Search inner(places_of, vertices_at), outer(places_of, vertices_at);
  std::vector<std::vector<double>> components;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(taken.size()); ++v) {
    if (taken[v] == 0 || inner.has_seen(v)) continue;
    const std::vector<std::int64_t> found = inner.from(v);
    std::int64_t root = found.back();
    for (auto u = found.rbegin(); u != found.rend() && inner.level(*u) == inner.level(root); ++u) {
      const auto rank = [&](std::int64_t w) { return std::make_pair(places_of.count(w), w); };
      if (rank(*u) < rank(root)) root = *u;
    }
    std::vector<double>& widths = components.emplace_back();
    for (const std::int64_t u : outer.from(root)) {
      widths.resize(static_cast<std::size_t>(outer.level(u)) + 1, 0.0);
      widths.back() += dims[u];
    }
  }
  return components;
}

}  // namespace graphopt
