#include "graph/gauge.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace graphopt {
namespace {

// Bucket counts of std::unordered_map that grows one element at a time (libstdc++, load factor 1).
constexpr std::array<std::uint64_t, 25> kBucketCounts{
    13,      29,       59,       127,      257,       541,       1109,     2357,    5087,
    10273,   20753,    42043,    85229,    172933,    351061,    712697,   1447153, 2938679,
    5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418451333};

}  // namespace

std::vector<std::int64_t> iteration_order(const std::int64_t* ids, std::int64_t count) {
  if (static_cast<std::uint64_t>(count) > kBucketCounts.back())
    throw std::length_error("iteration_order: more vertices than g2o's table of primes is made for");
  std::vector<std::int64_t> order, last, before, buckets;  // buckets: by first appearance
  for (const std::uint64_t bucket_count : kBucketCounts) {
    for (auto k = static_cast<std::int64_t>(order.size());
         k < std::min(static_cast<std::int64_t>(bucket_count), count); ++k)
      order.push_back(k);
    last.assign(bucket_count, -1);  // of each bucket what was inserted last, of that what was before it
    before.assign(order.size(), -1);
    buckets.clear();
    for (std::size_t k = 0; k < order.size(); ++k) {
      // std::hash<int> is the identity, converted to size_t
      const std::uint64_t bucket = static_cast<std::uint64_t>(ids[order[k]]) % bucket_count;
      if (last[bucket] < 0) buckets.push_back(static_cast<std::int64_t>(bucket));
      before[k] = last[bucket];
      last[bucket] = static_cast<std::int64_t>(k);
    }
    std::vector<std::int64_t> sequence;
    sequence.reserve(order.size());
    for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket)
      for (std::int64_t k = last[static_cast<std::size_t>(*bucket)]; k >= 0;
           k = before[static_cast<std::size_t>(k)])
        sequence.push_back(order[static_cast<std::size_t>(k)]);
    order = std::move(sequence);
    if (static_cast<std::int64_t>(order.size()) == count) break;
  }
  return order;
}

std::vector<std::int64_t> gauge_of_parts(const std::int64_t* order, const std::int64_t* part,
                                         const std::int64_t* dims, std::int64_t count, const bool* is_held,
                                         std::int64_t num_parts) {
  std::vector<std::int64_t> largest(static_cast<std::size_t>(num_parts), 0);
  std::vector<std::int64_t> first(static_cast<std::size_t>(num_parts), -1);
  for (std::int64_t k = 0; k < count; ++k) {
    if (part[k] < 0) continue;
    std::int64_t& dim = largest[static_cast<std::size_t>(part[k])];
    dim = std::max(dim, dims[k]);
  }
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t vertex = order[k];
    if (part[vertex] < 0 || is_held[part[vertex]]) continue;
    const auto number = static_cast<std::size_t>(part[vertex]);
    if (first[number] < 0 && dims[vertex] == largest[number]) first[number] = vertex;
  }
  return first;
}

}  // namespace graphopt
