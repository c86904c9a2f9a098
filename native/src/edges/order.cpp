#include "edges/order.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr std::int64_t kMostBuckets = 2048;  // write streams that the caches of one core hold

struct Keyed {
  std::uint32_t key, edge;
};

// Not initialised, so that the threads that fill it touch its memory first.
struct Keys {
  explicit Keys(std::int64_t count) : size(count), data(new std::uint32_t[static_cast<std::size_t>(count)]) {}
  std::uint32_t& operator[](std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
  const std::int64_t size;
  const std::unique_ptr<std::uint32_t[]> data;
};

// The runs of equal keys below `num_keys`.
Order runs_of(const Keys& sorted, std::int64_t num_keys) {
  const std::uint32_t* begin_of_keys = sorted.data.get();
  const std::int64_t num_placed =
      std::lower_bound(begin_of_keys, begin_of_keys + sorted.size, static_cast<std::uint32_t>(num_keys)) -
      begin_of_keys;
  const int shares = num_shares(sorted.size);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(shares) + 1, 0);
  const auto is_start = [&](std::int64_t i) { return i == 0 || sorted[i] != sorted[i - 1]; };
  for_each_share(num_placed, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t i = begin; i < end; ++i) count += is_start(i);
    starts[static_cast<std::size_t>(t) + 1] = count;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  Order result;
  result.first.resize(static_cast<std::size_t>(starts.back()) + 1);
  result.keys.resize(static_cast<std::size_t>(starts.back()));
  for_each_share(num_placed, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::size_t at = static_cast<std::size_t>(starts[static_cast<std::size_t>(t)]);
    for (std::int64_t i = begin; i < end; ++i)
      if (is_start(i)) {
        result.first[at] = static_cast<std::uint32_t>(i);
        result.keys[at++] = sorted[i];
      }
  });
  result.first.back() = static_cast<std::uint32_t>(num_placed);
  return result;
}

// Order one bucket, whose keys begin with `base`; `keys` gets its keys in that order.
void sort_bucket(const Keyed* bucket, std::int64_t size, std::uint32_t base, std::int64_t num_values,
                 std::uint32_t* keys, std::uint32_t* order) {
  std::vector<std::uint32_t> next(static_cast<std::size_t>(num_values) + 1, 0);
  for (std::int64_t i = 0; i < size; ++i) ++next[bucket[i].key - base + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint32_t to = next[bucket[i].key - base]++;
    keys[to] = bucket[i].key;
    order[to] = bucket[i].edge;
  }
}

// First by the high digits of the keys, whose buckets are then ordered one by one.
void sort_in_buckets(const Keys& keys, std::int64_t num_keys, std::uint32_t* order) {
  const std::int64_t size = keys.size;
  int shift = 0;
  while ((num_keys >> shift) >= kMostBuckets) ++shift;
  const std::size_t num_buckets = static_cast<std::size_t>(num_keys >> shift) + 1;
  const int shares = num_shares(size);
  std::vector<std::vector<std::int64_t>> next(static_cast<std::size_t>(shares),
                                              std::vector<std::int64_t>(num_buckets, 0));
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t>& own = next[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i) ++own[keys[i] >> shift];
  });
  std::vector<std::int64_t> first(num_buckets + 1, 0);
  std::int64_t at = 0;
  for (std::size_t bucket = 0; bucket < num_buckets; ++bucket) {
    for (std::vector<std::int64_t>& own : next) {
      const std::int64_t count = own[bucket];
      own[bucket] = at;
      at += count;
    }
    first[bucket + 1] = at;
  }
  const std::unique_ptr<Keyed[]> bucketed(new Keyed[static_cast<std::size_t>(size)]);
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t>& own = next[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i)
      bucketed[own[keys[i] >> shift]++] = {keys[i], static_cast<std::uint32_t>(i)};
  });
  const auto sort_one = [&](std::int64_t bucket) {
    const std::int64_t begin = first[bucket], count = first[bucket + 1] - begin;
    if (count > 0)
      sort_bucket(&bucketed[begin], count, static_cast<std::uint32_t>(bucket << shift),
                  std::int64_t{1} << shift, &keys[begin], order + begin);
  };
  std::atomic<std::int64_t> taken{0};
  for_each_share(shares, shares, [&](int, std::int64_t, std::int64_t) {
    for (std::int64_t b = taken++; b < static_cast<std::int64_t>(num_buckets); b = taken++) sort_one(b);
  });
}

}  // namespace

Order sort_by_key(const std::int32_t* rows, int stride, std::int64_t num_edges, const std::int64_t* table,
                  std::int64_t num_keys, std::uint32_t* order) {
  const Keys keys(num_edges);
  std::atomic<bool> is_sorted{true};
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    const auto key_of = [&](std::int64_t i) {
      const std::int64_t key = table[rows[i * stride]];
      return static_cast<std::uint32_t>(key < 0 ? num_keys : key);
    };
    std::uint32_t last = begin > 0 ? key_of(begin - 1) : 0;
    bool ascends = true;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t key = key_of(i);
      ascends &= key >= last;
      keys[i] = last = key;
    }
    if (!ascends) is_sorted = false;
  });
  if (is_sorted)
    for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
      std::iota(order + begin, order + end, static_cast<std::uint32_t>(begin));
    });
  else
    sort_in_buckets(keys, num_keys, order);
  return runs_of(keys, num_keys);
}

std::vector<std::uint32_t> tile_starts(const std::uint32_t* first, std::int64_t begin, std::int64_t end,
                                       std::int64_t most) {
  std::vector<std::uint32_t> starts;
  for (std::int64_t at = begin; at < end;) {
    starts.push_back(static_cast<std::uint32_t>(at));
    const std::int64_t last = std::int64_t{first[at]} + most;
    ++at;
    while (at < end && first[at + 1] <= last) ++at;
  }
  return starts;
}

}  // namespace graphopt::edges
