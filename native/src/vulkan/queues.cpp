#include "vulkan/queues.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/shares.h"
#include "parallel/thread_pool.h"

namespace graphopt::vulkan {

RowQueue build_row_queue(const RowQueueInput& in) {
  constexpr std::uint32_t transposed = 0x80000000u;
  RowQueue out;
  out.segment_ptr.assign(static_cast<std::size_t>(in.num_rows * in.num_classes + 1), 0);
  auto segment = [&](std::int32_t destination, std::int32_t source) {
    return static_cast<std::size_t>(destination) * in.num_classes + in.dim_class[source];
  };
  for (std::int64_t k = 0; k < in.num_blocks; ++k) {
    if (in.uses[k] & 1) ++out.segment_ptr[segment(in.row[k], in.col[k]) + 1];
    if (in.uses[k] & 2) ++out.segment_ptr[segment(in.col[k], in.row[k]) + 1];
  }
  std::partial_sum(out.segment_ptr.begin(), out.segment_ptr.end(), out.segment_ptr.begin());
  const auto num_items = static_cast<std::size_t>(out.segment_ptr.back());
  out.item_block.resize(num_items);
  out.item_scalar.resize(num_items);
  std::vector<std::int64_t> next(out.segment_ptr.begin(), out.segment_ptr.end() - 1);
  auto put = [&](std::int32_t destination, std::int32_t source, std::int64_t k, std::uint32_t flag) {
    const std::int64_t at = next[segment(destination, source)]++;
    out.item_block[at] = static_cast<std::uint32_t>(in.offset[k]);
    out.item_scalar[at] = static_cast<std::uint32_t>(in.scalar[source]) | flag;
  };
  for (std::int64_t k = 0; k < in.num_blocks; ++k) {
    if (in.uses[k] & 1) put(in.row[k], in.col[k], k, 0);
    if (in.uses[k] & 2) put(in.col[k], in.row[k], k, transposed);
  }
  return out;
}

LandmarkLists build_landmark_lists(const LandmarkColumns& in) {
  constexpr std::int64_t kItemsPerThread = 30'000;
  const std::int64_t num_landmarks = in.num_blocks - in.num_kept, before = in.col_ptr[in.num_kept];
  const std::int64_t num_items = in.col_ptr[in.num_blocks] - before - num_landmarks;
  const int shares = ThreadPool::instance().threads_for(num_items, kItemsPerThread);
  const auto num_kept = static_cast<std::size_t>(in.num_kept);
  // visit(stored block, its number among the items, landmark) for the landmarks of a share.
  const auto visit = [&](std::int64_t begin, std::int64_t end, const auto& one) {
    for (std::int64_t l = begin; l < end; ++l)
      for (std::int64_t k = in.col_ptr[in.num_kept + l]; k + 1 < in.col_ptr[in.num_kept + l + 1]; ++k)
        one(k, k - before - l, l);
  };
  // Of each share and kept vertex: how many items, then where its next one goes.
  std::vector<std::vector<std::int64_t>> next(static_cast<std::size_t>(shares));
  for_each_share(num_landmarks, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> own(num_kept, 0);
    visit(begin, end, [&](std::int64_t k, std::int64_t, std::int64_t) { ++own[in.row_idx[k]]; });
    next[t] = std::move(own);
  });
  LandmarkLists out{PlainArray<std::int64_t>(in.num_kept + 1), PlainArray<std::uint32_t>(num_items),
                    PlainArray<std::uint32_t>(num_items), PlainArray<std::uint32_t>(num_items),
                    PlainArray<std::uint32_t>(num_items)};
  std::int64_t first = 0;
  for (std::size_t row = 0; row < num_kept; ++row) {
    out.ptr[row] = first;
    for (std::vector<std::int64_t>& own : next) first += std::exchange(own[row], first);
  }
  out.ptr.back() = first;
  for_each_share(num_landmarks, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t>& own = next[static_cast<std::size_t>(t)];
    visit(begin, end, [&](std::int64_t k, std::int64_t item, std::int64_t l) {
      const std::int32_t row = in.row_idx[k];
      const std::int64_t at = own[static_cast<std::size_t>(row)]++;
      out.item_row[item] = static_cast<std::uint32_t>(row);
      out.item_landmark[item] = out.landmark[at] = static_cast<std::uint32_t>(l);
      out.block[at] = static_cast<std::uint32_t>(in.offset[k]);
    });
  });
  return out;
}

namespace {

// For each kept vertex, its items with their landmarks, by ascending landmark.
struct ItemsByRow {
  std::vector<std::int64_t> ptr;
  std::vector<std::int64_t> item;
  std::vector<std::int32_t> landmark;
};

ItemsByRow sort_by_row(const SchurQueueInput& in) {
  ItemsByRow out;
  const std::int64_t num_items = in.landmark_items[in.num_landmarks];
  out.ptr.assign(static_cast<std::size_t>(in.num_kept + 1), 0);
  for (std::int64_t k = 0; k < num_items; ++k) ++out.ptr[in.item_row[k] + 1];
  std::partial_sum(out.ptr.begin(), out.ptr.end(), out.ptr.begin());
  out.item.resize(static_cast<std::size_t>(num_items));
  out.landmark.resize(static_cast<std::size_t>(num_items));
  std::vector<std::int64_t> next(out.ptr.begin(), out.ptr.end() - 1);
  for (std::int64_t l = 0; l < in.num_landmarks; ++l) {
    for (std::int64_t k = in.landmark_items[l]; k < in.landmark_items[l + 1]; ++k) {
      const std::int64_t at = next[in.item_row[k]]++;
      out.item[at] = k;
      out.landmark[at] = static_cast<std::int32_t>(l);
    }
  }
  return out;
}

// Calls visit(row i, landmark class, item of i, item of j, landmark) for every pair of column j.
template <class Visit>
void for_each_pair(const SchurQueueInput& in, const ItemsByRow& items, std::int64_t j, Visit&& visit) {
  for (std::int64_t at = items.ptr[j]; at < items.ptr[j + 1]; ++at) {
    const std::int32_t l = items.landmark[at];
    const std::int64_t right = items.item[at];
    for (std::int64_t left = in.landmark_items[l]; left <= right; ++left) {
      visit(in.item_row[left], in.landmark_class[l], left, right, l);
    }
  }
}

// One column of the pattern, and how many pairs each of its blocks has per landmark class.
struct Column {
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> counts;  // rows x classes
};

Column count_column(const SchurQueueInput& in, const ItemsByRow& items, std::int64_t j,
                    std::vector<std::int64_t>& counts, std::vector<char>& seen) {
  Column column;
  auto touch = [&](std::int32_t i) {
    if (seen[i]) return;
    seen[i] = 1;
    column.rows.push_back(i);
  };
  for (std::int64_t k = in.kept_col_ptr[j]; k < in.kept_col_ptr[j + 1]; ++k) touch(in.kept_row_idx[k]);
  for_each_pair(in, items, j, [&](std::int32_t i, int c, std::int64_t, std::int64_t, std::int32_t) {
    touch(i);
    ++counts[static_cast<std::size_t>(i) * in.num_classes + c];
  });
  std::sort(column.rows.begin(), column.rows.end());
  for (std::int32_t i : column.rows) {
    for (int c = 0; c < in.num_classes; ++c) {
      std::int64_t& count = counts[static_cast<std::size_t>(i) * in.num_classes + c];
      column.counts.push_back(count);
      count = 0;
    }
    seen[i] = 0;
  }
  return column;
}

void fill_column(const SchurQueueInput& in, const ItemsByRow& items, std::int64_t j,
                 std::vector<std::int64_t>& next, SchurQueue& out) {
  for (std::int64_t s = out.col_ptr[j]; s < out.col_ptr[j + 1]; ++s) {
    for (int c = 0; c < in.num_classes; ++c) {
      next[static_cast<std::size_t>(out.row_idx[s]) * in.num_classes + c] =
          out.pair_ptr[s * in.num_classes + c];
    }
  }
  for_each_pair(in, items, j,
                [&](std::int32_t i, int c, std::int64_t left, std::int64_t right, std::int32_t l) {
                  const std::int64_t at = next[static_cast<std::size_t>(i) * in.num_classes + c]++;
                  out.pair_left[at] = static_cast<std::uint32_t>(in.item_offset[left]);
                  out.pair_right[at] = static_cast<std::uint32_t>(in.item_offset[right]);
                  out.pair_inverse[at] = static_cast<std::uint32_t>(in.inverse_offset[l]);
                });
}

}  // namespace

SchurQueue build_schur_queue(const SchurQueueInput& in) {
  const ItemsByRow items = sort_by_row(in);
  const auto cells = static_cast<std::size_t>(in.num_kept) * in.num_classes;
  ThreadPool& pool = ThreadPool::instance();
  const int num_threads = pool.num_threads();
  std::vector<Column> columns(static_cast<std::size_t>(in.num_kept));
  pool.run_shares(num_threads, [&](int t) {
    std::vector<std::int64_t> counts(cells, 0);
    std::vector<char> seen(static_cast<std::size_t>(in.num_kept), 0);
    for (std::int64_t j = t; j < in.num_kept; j += num_threads)
      columns[j] = count_column(in, items, j, counts, seen);
  });

  SchurQueue out;
  out.col_ptr.push_back(0);
  out.pair_ptr.push_back(0);
  for (Column& column : columns) {
    out.row_idx.insert(out.row_idx.end(), column.rows.begin(), column.rows.end());
    out.col_ptr.push_back(static_cast<std::int64_t>(out.row_idx.size()));
    for (std::int64_t count : column.counts) out.pair_ptr.push_back(out.pair_ptr.back() + count);
    column = Column{};
  }
  const auto num_pairs = static_cast<std::size_t>(out.pair_ptr.back());
  out.pair_left.resize(num_pairs);
  out.pair_right.resize(num_pairs);
  out.pair_inverse.resize(num_pairs);
  pool.run_shares(num_threads, [&](int t) {
    std::vector<std::int64_t> next(cells, 0);
    for (std::int64_t j = t; j < in.num_kept; j += num_threads) fill_column(in, items, j, next, out);
  });
  return out;
}

}  // namespace graphopt::vulkan
