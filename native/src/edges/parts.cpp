#include "edges/parts.h"

#include <numeric>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

// Roots (n,) that several threads join.
class SharedRoots {
 public:
  SharedRoots(std::int64_t* root, std::int64_t count) : root_(root) {
    for_each_share(count,
                   [&](std::int64_t begin, std::int64_t end) { std::iota(root + begin, root + end, begin); });
  }

  void join(std::int64_t a, std::int64_t b) {
    for (;;) {
      a = find(a), b = find(b);
      if (a == b) return;
      if (a < b) std::swap(a, b);
      std::int64_t expected = a;
      if (__atomic_compare_exchange_n(root_ + a, &expected, b, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    }
  }

 private:
  std::int64_t load(std::int64_t i) const { return __atomic_load_n(root_ + i, __ATOMIC_RELAXED); }

  // With path halving.
  std::int64_t find(std::int64_t i) {
    for (std::int64_t parent = load(i); parent != i;) {
      const std::int64_t next = load(parent);
      if (next != parent) {
        __atomic_compare_exchange_n(root_ + i, &parent, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
      }
      i = next;
      parent = load(i);
    }
    return i;
  }

  std::int64_t* const root_;
};

void set(std::uint8_t* flag) {
  if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) __atomic_store_n(flag, std::uint8_t{1}, __ATOMIC_RELAXED);
}

}  // namespace

std::vector<bool> connected_parts(const bool* taken, std::int64_t num_vertices,
                                  const std::vector<EdgeRows>& edges, std::int64_t* label) {
  SharedRoots roots(label, num_vertices);
  std::vector<std::uint8_t> touched(static_cast<std::size_t>(num_vertices), 0);  // by what holds its part
  for (const EdgeRows& set_of_edges : edges) {
    const std::int64_t arity = static_cast<std::int64_t>(set_of_edges.first.size());
    const std::int64_t* first = set_of_edges.first.data();
    for_each_share(set_of_edges.num_edges, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int32_t* row = set_of_edges.rows + i * arity;
        std::int64_t hub = -1;  // the edge's first taken vertex
        std::int64_t num_taken = 0;
        for (std::int64_t slot = 0; slot < arity; ++slot) {
          const std::int64_t vertex = first[slot] + row[slot];
          if (!taken[vertex]) continue;
          ++num_taken;
          if (hub < 0)
            hub = vertex;
          else if (vertex != hub)
            roots.join(hub, vertex);
        }
        if (hub >= 0 && (arity == 1 || num_taken < arity)) set(touched.data() + hub);
      }
    });
  }
  // A root is never larger than what it stands for: one pass in ascending order numbers the parts.
  std::vector<bool> is_held;
  for (std::int64_t i = 0; i < num_vertices; ++i) {
    if (!taken[i]) {
      label[i] = -1;
    } else if (label[i] == i) {
      label[i] = static_cast<std::int64_t>(is_held.size());
      is_held.push_back(false);
    } else {
      label[i] = label[label[i]];
    }
    if (touched[static_cast<std::size_t>(i)]) is_held[static_cast<std::size_t>(label[i])] = true;
  }
  return is_held;
}

std::int64_t edges_with_free_vertex(const std::int32_t* rows, std::int64_t num_edges,
                                    const std::vector<const bool*>& fixed, bool* keep) {
  const std::int64_t arity = static_cast<std::int64_t>(fixed.size());
  const int shares = num_shares(num_edges);
  std::vector<std::int64_t> kept(static_cast<std::size_t>(shares), 0);
  for_each_share(num_edges, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      bool is_free = false;
      for (std::int64_t slot = 0; slot < arity && !is_free; ++slot)
        is_free = !fixed[static_cast<std::size_t>(slot)][rows[i * arity + slot]];
      keep[i] = is_free;
      count += is_free;
    }
    kept[static_cast<std::size_t>(t)] = count;
  });
  return std::accumulate(kept.begin(), kept.end(), std::int64_t{0});
}

}  // namespace graphopt::edges
