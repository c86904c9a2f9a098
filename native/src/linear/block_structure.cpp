#include "linear/block_structure.h"

#include <algorithm>

#include "parallel/radix_sort.h"
#include "parallel/shares.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr std::int64_t kEdgesPerThread = 30'000;  // 300 us of looking up

struct Place {
  std::int32_t set;
  std::int32_t row;
};

// Vertices that stay, or those that are eliminated.
struct Places {
  std::vector<std::int64_t> ids;
  std::vector<Place> of_id;
};

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

bool is_off_diagonal(std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; }

}  // namespace

Numbering number_blocks(const std::vector<VertexFlags>& sets) {
  Places kept, eliminated;
  for (std::size_t s = 0; s < sets.size(); ++s)
    for (std::int64_t row = 0; row < sets[s].size; ++row)
      if (sets[s].free[row]) {
        Places& places = sets[s].eliminated[row] ? eliminated : kept;
        places.ids.push_back(sets[s].ids[row]);
        places.of_id.push_back({static_cast<std::int32_t>(s), static_cast<std::int32_t>(row)});
      } else {
        sets[s].block[row] = sets[s].offset[row] = -1;
      }
  const std::size_t num_blocks = kept.ids.size() + eliminated.ids.size();
  Numbering result;
  result.num_kept = static_cast<std::int64_t>(kept.ids.size());
  result.dims.reserve(num_blocks);
  result.ids.reserve(num_blocks);
  result.offsets.reserve(num_blocks + 1);
  result.offsets.push_back(0);
  for (Places* places : {&kept, &eliminated})
    for (const std::int32_t at : sorted_order(places->ids)) {
      const Place place = places->of_id[static_cast<std::size_t>(at)];
      const VertexFlags& set = sets[static_cast<std::size_t>(place.set)];
      set.block[place.row] = static_cast<std::int64_t>(result.dims.size());
      set.offset[place.row] = result.offsets.back();
      result.dims.push_back(set.dim);
      result.ids.push_back(set.ids[place.row]);
      result.offsets.push_back(result.offsets.back() + set.dim);
    }
  return result;
}

std::shared_ptr<BlockPattern> block_pattern(const std::vector<std::int32_t>& dims,
                                            const std::vector<EdgeSlots>& edges) {
  const std::size_t num_blocks = dims.size();
  // rows of the off-diagonal blocks of each column, with repetitions
  std::vector<std::int64_t> first(num_blocks + 1, 0);
  for (const EdgeSlots& one : edges)
    for_each_pair(one, 0, one.size, [&](std::int64_t, int, std::int64_t a, std::int64_t b) {
      if (is_off_diagonal(a, b)) ++first[static_cast<std::size_t>(std::max(a, b)) + 1];
    });
  for (std::size_t col = 0; col < num_blocks; ++col) first[col + 1] += first[col];
  std::vector<std::int32_t> rows(static_cast<std::size_t>(first[num_blocks]));
  std::vector<std::int64_t> next(first.begin(), first.end() - 1);
  for (const EdgeSlots& one : edges)
    for_each_pair(one, 0, one.size, [&](std::int64_t, int, std::int64_t a, std::int64_t b) {
      if (!is_off_diagonal(a, b)) return;
      std::int64_t& at = next[static_cast<std::size_t>(std::max(a, b))];
      rows[static_cast<std::size_t>(at++)] = static_cast<std::int32_t>(std::min(a, b));
    });

  std::vector<std::int64_t> col_ptr(num_blocks + 1, 0);
  std::vector<std::int32_t> row_idx;
  row_idx.reserve(rows.size() + num_blocks);
  constexpr double kNanosecondsPerRow = 10.0;
  PatientStop stop;
  for (std::size_t col = 0; col < num_blocks; ++col) {
    const auto begin = rows.begin() + first[col], end = rows.begin() + first[col + 1];
    if (stop.after(kNanosecondsPerRow * static_cast<double>(end - begin + 1))) throw Stopped();
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    for (auto row = begin; row != end; ++row)
      if (row == begin || *row != row[-1]) row_idx.push_back(*row);
    row_idx.push_back(static_cast<std::int32_t>(col));
    col_ptr[col + 1] = static_cast<std::int64_t>(row_idx.size());
  }
  auto made = std::make_shared<BlockPattern>(dims, std::move(col_ptr), std::move(row_idx));
  const BlockPattern& pattern = *made;

  for (const EdgeSlots& one : edges) {
    const int num_pairs = one.arity * (one.arity + 1) / 2;
    const auto place = [&](std::int64_t i, int pair, std::int64_t a, std::int64_t b) {
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
    };
    for_each_share(one.size, ThreadPool::instance().threads_for(one.size, kEdgesPerThread),
                   [&](int, std::int64_t begin, std::int64_t end) { for_each_pair(one, begin, end, place); });
  }
  return made;
}

}  // namespace graphopt
