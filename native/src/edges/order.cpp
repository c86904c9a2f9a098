#include "edges/order.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "edges/shares.h"
#include "linear/kept_memory.h"

namespace graphopt::edges {
namespace {

constexpr std::int64_t kMostBuckets = 2048;  // write streams that the caches of one core hold

struct Keyed {
  std::uint32_t key, edge;
};

using Keys = KeptArray<std::uint32_t>;

// The runs of equal keys below `num_keys`.
Order runs_of(const Keys& sorted, std::int64_t num_keys) {
  const std::int64_t num_placed =
      std::lower_bound(sorted.begin(), sorted.end(), static_cast<std::uint32_t>(num_keys)) - sorted.begin();
  const int shares = num_shares(sorted.size());
  std::vector<std::int64_t> starts(static_cast<std::size_t>(shares) + 1, 0);
  const auto is_start = [&](std::int64_t i) { return i == 0 || sorted[i] != sorted[i - 1]; };
  for_each_share(num_placed, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t i = begin; i < end; ++i) count += is_start(i);
    starts[static_cast<std::size_t>(t) + 1] = count;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  Order result{PlainArray<std::uint32_t>(starts.back() + 1), PlainArray<std::int64_t>(starts.back())};
  for_each_share(num_placed, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t at = starts[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i)
      if (is_start(i)) {
        result.first[at] = static_cast<std::uint32_t>(i);
        result.keys[at++] = sorted[i];
      }
  });
  result.first.back() = static_cast<std::uint32_t>(num_placed);
  return result;
}

constexpr std::int64_t kSparse = 4;  // values per key from which on comparing takes less than counting

// Order one bucket, whose keys begin with `base`; `keys` gets its keys in that order.
void sort_bucket(Keyed* bucket, std::int64_t size, std::uint32_t base, std::int64_t num_values,
                 std::uint32_t* keys, std::uint32_t* order) {
  if (num_values > kSparse * size) {
    const auto before = [](const Keyed& a, const Keyed& b) {
      return a.key != b.key ? a.key < b.key : a.edge < b.edge;
    };
    std::sort(bucket, bucket + size, before);
    for (std::int64_t i = 0; i < size; ++i) {
      keys[i] = bucket[i].key;
      order[i] = bucket[i].edge;
    }
    return;
  }
  std::vector<std::uint32_t> next(static_cast<std::size_t>(num_values) + 1, 0);
  for (std::int64_t i = 0; i < size; ++i) ++next[bucket[i].key - base + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint32_t to = next[bucket[i].key - base]++;
    keys[to] = bucket[i].key;
    order[to] = bucket[i].edge;
  }
}

// By the digits of the keys from `shift` on: for each share of them where its next one of a bucket goes, and
// where each bucket begins.
struct Buckets {
  std::vector<std::vector<std::int64_t>> next;
  std::vector<std::int64_t> first;
};

Buckets buckets_of(const Keys& keys, std::int64_t num_keys, int shift) {
  const std::size_t num_buckets = static_cast<std::size_t>(num_keys >> shift) + 1;
  const int shares = num_shares(keys.size());
  Buckets result{std::vector(static_cast<std::size_t>(shares), std::vector<std::int64_t>(num_buckets, 0)),
                 std::vector<std::int64_t>(num_buckets + 1, 0)};
  for_each_share(keys.size(), shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t>& own = result.next[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i) ++own[keys[i] >> shift];
  });
  std::int64_t at = 0;
  for (std::size_t bucket = 0; bucket < num_buckets; ++bucket) {
    for (std::vector<std::int64_t>& own : result.next) {
      const std::int64_t count = own[bucket];
      own[bucket] = at;
      at += count;
    }
    result.first[bucket + 1] = at;
  }
  return result;
}

// A bucket per key: edges go to their places at once.
Order sort_by_few_keys(const Keys& keys, std::int64_t num_keys, std::uint32_t* order) {
  Buckets buckets = buckets_of(keys, num_keys, 0);
  for_each_share(keys.size(), static_cast<int>(buckets.next.size()),
                 [&](int t, std::int64_t begin, std::int64_t end) {
                   std::vector<std::int64_t>& own = buckets.next[static_cast<std::size_t>(t)];
                   for (std::int64_t i = begin; i < end; ++i)
                     order[own[keys[i]]++] = static_cast<std::uint32_t>(i);
                 });
  const auto occurs = [&](std::int64_t key) { return buckets.first[key] < buckets.first[key + 1]; };
  std::int64_t num_runs = 0;
  for (std::int64_t key = 0; key < num_keys; ++key) num_runs += occurs(key);
  Order result{PlainArray<std::uint32_t>(num_runs + 1), PlainArray<std::int64_t>(num_runs)};
  std::int64_t run = 0;
  for (std::int64_t key = 0; key < num_keys; ++key) {
    if (!occurs(key)) continue;
    result.first[run] = static_cast<std::uint32_t>(buckets.first[key]);
    result.keys[run++] = key;
  }
  result.first[run] = static_cast<std::uint32_t>(buckets.first[num_keys]);
  return result;
}

// First by the high digits of the keys, whose buckets are then ordered one by one; `keys` are ordered, too.
void sort_in_buckets(const Keys& keys, std::int64_t num_keys, int shift, std::uint32_t* order) {
  Buckets buckets = buckets_of(keys, num_keys, shift);
  const int shares = static_cast<int>(buckets.next.size());
  const KeptArray<Keyed> bucketed(keys.size());
  for_each_share(keys.size(), shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t>& own = buckets.next[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i)
      bucketed[own[keys[i] >> shift]++] = {keys[i], static_cast<std::uint32_t>(i)};
  });
  const auto sort_one = [&](std::int64_t bucket) {
    const std::int64_t begin = buckets.first[bucket], count = buckets.first[bucket + 1] - begin;
    if (count > 0)
      sort_bucket(&bucketed[begin], count, static_cast<std::uint32_t>(bucket << shift),
                  std::int64_t{1} << shift, &keys[begin], order + begin);
  };
  const auto num_buckets = static_cast<std::int64_t>(buckets.first.size()) - 1;
  std::atomic<std::int64_t> taken{0};
  for_each_share(shares, shares, [&](int, std::int64_t, std::int64_t) {
    for (std::int64_t b = taken++; b < num_buckets; b = taken++) sort_one(b);
  });
}

// Of edges with these keys, which end up in order; those with the key num_keys come last.
Order order_of(const Keys& keys, std::int64_t num_keys, std::uint32_t* order) {
  std::atomic<bool> is_sorted{true};
  for_each_share(keys.size(), [&](std::int64_t begin, std::int64_t end) {
    if (!std::is_sorted(keys.begin() + std::max<std::int64_t>(begin - 1, 0), keys.begin() + end))
      is_sorted = false;
  });
  if (is_sorted) {
    for_each_share(keys.size(), [&](std::int64_t begin, std::int64_t end) {
      std::iota(order + begin, order + end, static_cast<std::uint32_t>(begin));
    });
    return runs_of(keys, num_keys);
  }
  int shift = 0;
  while ((num_keys >> shift) >= kMostBuckets) ++shift;
  if (shift == 0) return sort_by_few_keys(keys, num_keys, order);
  sort_in_buckets(keys, num_keys, shift, order);
  return runs_of(keys, num_keys);
}

}  // namespace

Order sort_by_key(const std::int32_t* rows, int stride, std::int64_t num_edges, const std::int64_t* table,
                  std::int64_t num_keys, std::uint32_t* order) {
  const Keys keys(num_edges);
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t key = table[rows[i * stride]];
      keys[i] = static_cast<std::uint32_t>(key < 0 ? num_keys : key);
    }
  });
  return order_of(keys, num_keys, order);
}

PairOrder sort_pairs(const PairPlaces& places, const std::uint32_t* order, std::int64_t num_edges) {
  constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
  const auto at = [&](std::int64_t i) { return std::int64_t{places.num_pairs} * order[i] + places.pair; };
  const Keys keys(num_edges);
  std::atomic<std::int64_t> largest{-1};
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own = -1;
    for (std::int64_t i = begin; i < end; ++i) {
      const bool is_left_out = places.left_out != nullptr && places.left_out[order[i]];
      const std::int64_t offset = is_left_out ? -1 : places.offset[at(i)];
      keys[i] = offset < 0 ? nowhere : static_cast<std::uint32_t>(offset);
      own = std::max(own, offset);
    }
    for (std::int64_t before = largest; before < own && !largest.compare_exchange_weak(before, own);) {
    }
  });
  const std::int64_t num_keys = largest + 1;
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    std::replace(keys.begin() + begin, keys.begin() + end, nowhere, static_cast<std::uint32_t>(num_keys));
  });
  const KeptArray<std::uint32_t> sorted(num_edges);
  Order runs = order_of(keys, num_keys, sorted.begin());
  PairOrder result{std::move(runs.first), PlainArray<std::uint32_t>(0),
                   PlainArray<std::uint32_t>(runs.keys.size())};
  std::copy(runs.keys.begin(), runs.keys.end(), result.offset.begin());
  result.edges = PlainArray<std::uint32_t>(result.first.back());
  for_each_share(result.edges.size(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      result.edges[k] = sorted[k] | (places.transposed[at(sorted[k])] ? kTransposed : 0);
  });
  return result;
}

void places_in(const std::int64_t* numbers, std::int64_t size, const std::uint32_t* values,
               std::int64_t num_values, std::int64_t* at) {
  for_each_share(num_values, [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    const std::int64_t* place = std::lower_bound(numbers, numbers + size, std::int64_t{values[begin]});
    for (std::int64_t k = begin; k < end; ++k) {
      while (place != numbers + size && *place < values[k]) ++place;
      at[k] = place - numbers;
    }
  });
}

void sort_by_ends(const std::int32_t* rows, int arity, int slot, int other, std::int64_t num_edges,
                  const std::int64_t* table, std::int64_t num_keys, std::int64_t num_others,
                  std::uint32_t* order) {
  std::vector<std::int64_t> itself(static_cast<std::size_t>(num_others));
  std::iota(itself.begin(), itself.end(), 0);
  const KeptArray<std::uint32_t> by_other(num_edges);
  sort_by_key(rows + other, arity, num_edges, itself.data(), num_others, by_other.begin());
  const KeptArray<std::int32_t> own(num_edges);
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) own[i] = rows[std::int64_t{arity} * by_other[i] + slot];
  });
  sort_by_key(own.begin(), 1, num_edges, table, num_keys, order);
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) order[i] = by_other[order[i]];
  });
}

Segments take_segments(const std::uint32_t* first, const std::int64_t* chosen, std::int64_t num_segments,
                       const std::uint32_t* numbers, std::int64_t size) {
  Segments result{PlainArray<std::uint32_t>(num_segments + 1), PlainArray<std::uint32_t>(size)};
  std::uint32_t at = 0;
  for (std::int64_t s = 0; s < num_segments; ++s) {
    result.first[s] = at;
    at += first[chosen[s] + 1] - first[chosen[s]];
  }
  result.first.back() = at;
  for_each_share(size, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t s =
        std::upper_bound(result.first.begin(), result.first.end(), begin) - result.first.begin() - 1;
    for (std::int64_t i = begin; i < end; ++s) {
      const bool is_rest = s >= num_segments;
      const std::int64_t last = is_rest ? end : std::min<std::int64_t>(result.first[s + 1], end);
      const std::int64_t from = is_rest ? i : first[chosen[s]] + (i - result.first[s]);
      std::copy(numbers + from, numbers + from + (last - i), result.numbers.begin() + i);
      i = last;
    }
  });
  return result;
}

void invert_order(const std::uint32_t* order, std::int64_t size, std::uint32_t* place) {
  for_each_share(size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) place[order[i]] = static_cast<std::uint32_t>(i);
  });
}

void neighbour_keys(const Neighbours& edges, std::int64_t num_rows, std::int64_t* keys) {
  for_each_share(num_rows, [&](std::int64_t begin, std::int64_t end) {
    std::fill(keys + begin, keys + end, edges.num_others * edges.num_others);
  });
  for_each_share(edges.num_destinations, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t d = begin; d < end; ++d) {
      std::int32_t low = std::numeric_limits<std::int32_t>::max(), high = 0, own = 0;
      for (std::uint32_t at = edges.first[d]; at < edges.first[d + 1]; ++at) {
        const std::int32_t* ends = edges.rows + std::int64_t{edges.arity} * edges.order[at];
        low = std::min(low, ends[edges.other]);
        high = std::max(high, ends[edges.other]);
        own = ends[edges.slot];
      }
      keys[own] = low * edges.num_others + high;
    }
  });
}

void renumber_rows(const std::int32_t* rows, std::int64_t num_edges, int arity, int slot,
                   const std::uint32_t* place, std::int32_t* out) {
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    std::copy(rows + begin * arity, rows + end * arity, out + begin * arity);
    for (std::int64_t edge = begin; edge < end; ++edge) {
      std::int32_t& row = out[edge * arity + slot];
      row = static_cast<std::int32_t>(place[row]);
    }
  });
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
