#include "linear/block_structure.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/radix_sort.h"
#include "parallel/shares.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr std::int64_t kEdgesPerThread = 30'000;  // 300 us of looking up

constexpr std::int64_t kVerticesPerThread = 20'000;
constexpr std::int64_t kDenseSpan = 4;  // ids per vertex up to which a table of all ids pays

// visit(edge, pair, first block, second block) for all pairs of slots (0, 0), (0, 1), ..., (1, 1), ... of
// some edges.
template <class Visit>
void for_each_pair(const EdgeSlots& edges, std::int64_t begin, std::int64_t end, Visit visit) {
  if (edges.arity == 2) {
    const std::int64_t *first = edges.table[0], *second = edges.table[1];
    const std::int32_t* rows = edges.rows + 2 * begin;
    for (std::int64_t i = begin; i < end; ++i, rows += 2) {
      throw_if_stopped_at(i);
      const std::int64_t a = first[rows[0]], b = second[rows[1]];
      visit(i, 0, a, a);
      visit(i, 1, a, b);
      visit(i, 2, b, b);
    }
    return;
  }
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(edges.arity));
  for (std::int64_t i = begin; i < end; ++i) {
    throw_if_stopped_at(i);
    for (int slot = 0; slot < edges.arity; ++slot)
      blocks[slot] = edges.table[slot][edges.rows[i * edges.arity + slot]];
    int pair = 0;
    for (int a = 0; a < edges.arity; ++a)
      for (int b = a; b < edges.arity; ++b, ++pair) visit(i, pair, blocks[a], blocks[b]);
  }
}

int shares_of(std::int64_t num_edges) {
  return ThreadPool::instance().threads_for(num_edges, kEdgesPerThread);
}

// The same for all edges, by the threads.
template <class Visit>
void for_all_pairs(const EdgeSlots& edges, int shares, const Visit& visit) {
  for_each_share(edges.size, shares,
                 [&](int, std::int64_t begin, std::int64_t end) { for_each_pair(edges, begin, end, visit); });
}

bool is_off_diagonal(std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; }

// Adds 1; what was there before. is_shared: other threads may add to it at the same time.
std::int64_t count_one(std::int64_t& number, bool is_shared) {
  return is_shared ? __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED) : number++;
}

// Rows of the blocks of each column, ascending, the diagonal one last.
struct Columns {
  std::vector<std::int64_t> first;  // (nb + 1)
  std::vector<std::int32_t> rows;
};

// Of each column, sort rows[first[col]] up to rows[first[col + 1]] and move those that differ to the front;
// how many these are.
std::vector<std::int64_t> sort_columns(const std::vector<std::int64_t>& first,
                                       std::vector<std::int32_t>& rows, int shares) {
  constexpr double kNanosecondsPerRow = 10.0;
  const std::int64_t num_blocks = static_cast<std::int64_t>(first.size()) - 1;
  std::vector<std::int64_t> counts(first.size() - 1);
  for_each_share(num_blocks, shares, [&](int, std::int64_t begin_col, std::int64_t end_col) {
    PatientStop stop;
    for (std::int64_t col = begin_col; col < end_col; ++col) {
      const auto begin = rows.begin() + first[col], end = rows.begin() + first[col + 1];
      if (stop.after(kNanosecondsPerRow * static_cast<double>(end - begin + 1))) return;
      if (!std::is_sorted(begin, end)) std::sort(begin, end);
      counts[static_cast<std::size_t>(col)] = std::unique(begin, end) - begin;
    }
  });
  throw_if_stopped();
  return counts;
}

// Pairs that a share of the edges has added not long ago. Observations that share their intrinsics have the
// same pairs again and again, which all threads would add to the same column, and sort.
class AddedPairs {
 public:
  AddedPairs(const EdgeSlots& edges, std::int64_t num_edges) : is_on_(edges.arity > 2) {
    const std::int64_t num_pairs = edges.arity * (edges.arity + 1) / 2;
    while (is_on_ && size_ * num_pairs < kMost && kEdgesPerPair * size_ < num_edges) size_ *= 2;
    if (is_on_) pairs_.resize(static_cast<std::size_t>(size_ * num_pairs));
  }

  // Whether it is one of those; it is from now on.
  bool has(int pair, std::int64_t a, std::int64_t b) {
    if (!is_on_) return false;
    const std::uint64_t low = static_cast<std::uint64_t>(std::min(a, b)),
                        high = static_cast<std::uint64_t>(std::max(a, b));
    const std::uint64_t mask = static_cast<std::uint64_t>(size_) - 1, key = (low << 32 | high) + 1;
    std::uint64_t& known = pairs_[static_cast<std::size_t>(pair) * size_ + ((low + kSpread * high) & mask)];
    return std::exchange(known, key) == key;
  }

 private:
  static constexpr std::int64_t kEdgesPerPair = 8, kMost = 1 << 16;  // half a MiB to a MiB
  static constexpr std::uint64_t kSpread = 0x9E3779B1;               // odd
  bool is_on_;
  std::int64_t size_ = 16;
  std::vector<std::uint64_t> pairs_;
};

// visit(column, row) for the pairs of all edges, by the threads; the same ones each time. Some come
// repeatedly.
template <class Visit>
void for_each_entry(const EdgeSlots& edges, int shares, const Visit& visit) {
  for_each_share(edges.size, shares, [&](int, std::int64_t begin, std::int64_t end) {
    AddedPairs added(edges, end - begin);
    for_each_pair(edges, begin, end, [&](std::int64_t, int pair, std::int64_t a, std::int64_t b) {
      if (is_off_diagonal(a, b) && !added.has(pair, a, b))
        visit(static_cast<std::size_t>(std::max(a, b)), static_cast<std::int32_t>(std::min(a, b)));
    });
  });
}

// Which thread adds which row does not matter: they are sorted.
Columns columns_of(std::size_t num_blocks, const std::vector<EdgeSlots>& edges) {
  std::int64_t size = 0;
  for (const EdgeSlots& one : edges) size += one.size;
  const int shares = shares_of(size);
  const bool is_shared = shares > 1;
  std::vector<std::int64_t> first(num_blocks + 1, 0);  // of the rows with repetitions
  for (const EdgeSlots& one : edges)
    for_each_entry(one, shares, [&](std::size_t col, std::int32_t) { count_one(first[col + 1], is_shared); });
  for (std::size_t col = 0; col < num_blocks; ++col) first[col + 1] += first[col];
  std::vector<std::int32_t> all(static_cast<std::size_t>(first[num_blocks]));
  std::vector<std::int64_t> next(first.begin(), first.end() - 1);
  for (const EdgeSlots& one : edges)
    for_each_entry(one, shares, [&](std::size_t col, std::int32_t row) {
      all[static_cast<std::size_t>(count_one(next[col], is_shared))] = row;
    });

  const std::vector<std::int64_t> counts = sort_columns(first, all, shares);
  Columns result;
  result.first.resize(num_blocks + 1, 0);
  for (std::size_t col = 0; col < num_blocks; ++col)
    result.first[col + 1] = result.first[col] + counts[col] + 1;
  result.rows.resize(static_cast<std::size_t>(result.first[num_blocks]));
  for_each_share(static_cast<std::int64_t>(num_blocks), shares,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t col = begin; col < end; ++col) {
                     const auto to = result.rows.begin() + result.first[col];
                     *std::copy_n(all.begin() + first[col], counts[col], to) = static_cast<std::int32_t>(col);
                   }
                 });
  return result;
}

constexpr std::int64_t kNoVertex = -1;

// Blocks and scalars, of vertices that stay and of those that are eliminated.
struct Ends {
  std::int64_t blocks[2] = {0, 0}, scalars[2] = {0, 0};

  void add(const Ends& other) {
    for (int kind : {0, 1}) {
      blocks[kind] += other.blocks[kind];
      scalars[kind] += other.scalars[kind];
    }
  }
};

// visit(entry, id) for the free vertices of a set, first: number of its first one; the others have no block.
template <class Visit>
void visit_free(const VertexFlags& set, std::int64_t first, std::int64_t begin, std::int64_t end,
                const Visit& visit) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (set.free[row])
      visit(2 * (first + row) + (set.eliminated[row] ? 1 : 0), set.ids[row]);
    else
      set.block[row] = set.offset[row] = -1;
  }
}

// Free vertices by ascending id, as 2 * number + (1 if eliminated), numbers counted over all sets; with gaps.
PlainArray<std::int64_t> by_id(const std::vector<VertexFlags>& sets, const std::vector<std::int64_t>& first) {
  std::int64_t low = std::numeric_limits<std::int64_t>::max(),
               high = std::numeric_limits<std::int64_t>::min();
  for (const VertexFlags& set : sets) {
    if (set.size == 0) continue;
    const auto [least, most] = std::minmax_element(set.ids, set.ids + set.size);
    low = std::min(low, *least);
    high = std::max(high, *most);
  }
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (span < static_cast<std::uint64_t>(kDenseSpan * first.back())) {
    PlainArray<std::int64_t> table(static_cast<std::int64_t>(span) + 1);
    for_each_share(table.size(), ThreadPool::instance().threads_for(table.size(), kVerticesPerThread),
                   [&](int, std::int64_t begin, std::int64_t end) {
                     std::fill(table.begin() + begin, table.begin() + end, kNoVertex);
                   });
    for (std::size_t s = 0; s < sets.size(); ++s)
      for_each_share(sets[s].size, ThreadPool::instance().threads_for(sets[s].size, kVerticesPerThread),
                     [&](int, std::int64_t begin, std::int64_t end) {
                       visit_free(sets[s], first[s], begin, end,
                                  [&](std::int64_t entry, std::int64_t id) { table[id - low] = entry; });
                     });
    return table;
  }
  std::vector<std::int64_t> ids, entries;
  for (std::size_t s = 0; s < sets.size(); ++s)
    visit_free(sets[s], first[s], 0, sets[s].size, [&](std::int64_t entry, std::int64_t id) {
      ids.push_back(id);
      entries.push_back(entry);
    });
  PlainArray<std::int64_t> sorted(static_cast<std::int64_t>(entries.size()));
  std::int64_t next = 0;
  for (const std::int32_t at : sorted_order(ids)) sorted[next++] = entries[static_cast<std::size_t>(at)];
  return sorted;
}

}  // namespace

Numbering number_blocks(const std::vector<VertexFlags>& sets) {
  std::vector<std::int64_t> first(1, 0);
  for (const VertexFlags& set : sets) first.push_back(first.back() + set.size);
  const PlainArray<std::int64_t> order = by_id(sets, first);
  // Of each share: blocks that stay and that are eliminated, and their scalars; then what comes before them.
  const std::int64_t size = order.size();
  const int shares = ThreadPool::instance().threads_for(size, kVerticesPerThread);
  std::vector<Ends> ends(static_cast<std::size_t>(shares) + 1);
  const auto place_of = [&](std::int64_t entry) {
    const std::int64_t number = entry >> 1;
    const auto set = std::upper_bound(first.begin(), first.end(), number) - first.begin() - 1;
    return std::make_pair(&sets[static_cast<std::size_t>(set)],
                          number - first[static_cast<std::size_t>(set)]);
  };
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    Ends own;
    for (std::int64_t i = begin; i < end; ++i) {
      if (order[i] == kNoVertex) continue;
      ++own.blocks[order[i] & 1];
      own.scalars[order[i] & 1] += place_of(order[i]).first->dim;
    }
    ends[static_cast<std::size_t>(t) + 1] = own;
  });
  for (std::size_t t = 1; t < ends.size(); ++t) ends[t].add(ends[t - 1]);
  const Ends total = ends.back();
  Numbering result;
  result.num_kept = total.blocks[0];
  result.dims.resize(static_cast<std::size_t>(total.blocks[0] + total.blocks[1]));
  result.ids = PlainArray<std::int64_t>(total.blocks[0] + total.blocks[1]);
  result.offsets = PlainArray<std::int64_t>(result.ids.size() + 1);
  result.offsets.back() = total.scalars[0] + total.scalars[1];
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    Ends next = ends[static_cast<std::size_t>(t)];
    next.blocks[1] += total.blocks[0];
    next.scalars[1] += total.scalars[0];
    for (std::int64_t i = begin; i < end; ++i) {
      if (order[i] == kNoVertex) continue;
      const auto& [set, row] = place_of(order[i]);
      const std::int64_t block = next.blocks[order[i] & 1]++, offset = next.scalars[order[i] & 1];
      next.scalars[order[i] & 1] += set->dim;
      set->block[row] = block;
      set->offset[row] = offset;
      result.dims[static_cast<std::size_t>(block)] = set->dim;
      result.ids[block] = set->ids[row];
      result.offsets[block] = offset;
    }
  });
  return result;
}

std::shared_ptr<BlockPattern> block_pattern(const std::vector<std::int32_t>& dims,
                                            const std::vector<EdgeSlots>& edges) {
  Columns columns = columns_of(dims.size(), edges);
  const auto made = std::make_shared<BlockPattern>(dims, std::move(columns.first), std::move(columns.rows));
  const BlockPattern& pattern = *made;
  for (const EdgeSlots& one : edges) {
    const int num_pairs = one.arity * (one.arity + 1) / 2;
    for_all_pairs(one, shares_of(one.size), [&](std::int64_t i, int pair, std::int64_t a, std::int64_t b) {
      std::int64_t offset = -1;
      if (a >= 0 && b >= 0) {
        const int col = static_cast<int>(std::max(a, b));
        const auto first_row = pattern.row_idx().begin();
        const auto begin = first_row + pattern.column_begin(col), end = first_row + pattern.column_end(col);
        const auto found = a == b ? end - 1 : std::lower_bound(begin, end, std::min(a, b));
        offset = pattern.value_offset(found - first_row);
      }
      one.block_offset[i * num_pairs + pair] = offset;
      one.block_transposed[i * num_pairs + pair] = offset >= 0 && a > b;
    });
  }
  return made;
}

}  // namespace graphopt
