// Which vertices to hold so that the answer is determined: graphopt/solver/gauge.py says which and why.
#include <algorithm>
#include <array>
#include <numeric>

#include "problem.h"

namespace graphopt::embed {
namespace {

// Bucket counts of libstdc++'s unordered_map that grows one element at a time.
constexpr std::array<std::uint64_t, 25> kBucketCounts{
    13,      29,       59,       127,      257,       541,       1109,     2357,    5087,
    10273,   20753,    42043,    85229,    172933,    351061,    712697,   1447153, 2938679,
    5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418451333};

// Places of `ids` in the order in which g2o's map has them, see graphopt/graph/gauge.py.
std::vector<std::size_t> iteration_order(const std::vector<std::int64_t>& ids) {
  std::vector<std::size_t> order;
  for (const std::uint64_t bucket_count : kBucketCounts) {
    std::vector<std::size_t> sequence = order;
    for (std::size_t k = order.size(); k < std::min<std::size_t>(bucket_count, ids.size()); ++k)
      sequence.push_back(k);
    std::vector<std::pair<std::uint64_t, std::size_t>> buckets;  // bucket, position
    for (std::size_t k = 0; k < sequence.size(); ++k)
      buckets.emplace_back(static_cast<std::uint64_t>(ids[sequence[k]]) % bucket_count, k);
    std::sort(buckets.begin(), buckets.end());
    struct Key {
      std::size_t first, position;
    };
    std::vector<Key> keys;
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      const bool starts = k == 0 || buckets[k].first != buckets[k - 1].first;
      keys.push_back({starts ? buckets[k].second : keys.back().first, buckets[k].second});
    }
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
      return a.first != b.first ? a.first > b.first : a.position > b.position;
    });
    order.clear();
    for (const Key& key : keys) order.push_back(sequence[key.position]);
    if (order.size() == ids.size()) break;
  }
  return order;
}

class Parts {
 public:
  explicit Parts(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t of(std::size_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  void join(std::size_t a, std::size_t b) { parent_[of(a)] = of(b); }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace

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
  Parts parts(places.size());
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
        parts.join(number, moving.front());
      }
    }
  std::vector<char> held(places.size(), 0);
  std::vector<int> largest(places.size(), 0);
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (active[k] == 0) continue;
    held[parts.of(k)] |= touched[k];
    largest[parts.of(k)] = std::max(largest[parts.of(k)], set_of(k).type->tangent_dim);
  }
  std::vector<std::size_t> added(places.size());
  std::iota(added.begin(), added.end(), std::size_t{0});
  std::stable_sort(added.begin(), added.end(),
                   [&](std::size_t a, std::size_t b) { return sequence[a] < sequence[b]; });
  std::vector<std::int64_t> ids;
  for (const std::size_t k : added) ids.push_back(set_of(k).ids[static_cast<std::size_t>(places[k].row)]);
  std::vector<Place> chosen;
  for (const std::size_t at : iteration_order(ids)) {
    const std::size_t k = added[at], part = parts.of(k);
    if (active[k] == 0 || held[part] != 0 || set_of(k).type->tangent_dim != largest[part]) continue;
    held[part] = 1;
    if (set_of(k).type->is_pose) chosen.push_back(places[k]);
  }
  return chosen;
}

}  // namespace graphopt::embed
