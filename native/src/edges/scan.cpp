#include "edges/scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "edges/shares.h"

namespace graphopt::edges {

std::int32_t look_up(const std::int64_t* ids, std::int64_t size, std::int64_t low, const std::int32_t* table,
                     std::int64_t span, std::int32_t* out) {
  const int shares = num_shares(size);
  std::vector<std::int32_t> smallest(static_cast<std::size_t>(shares), 0);
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int32_t least = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(ids[i]) - static_cast<std::uint64_t>(low);
      const std::int32_t row = at < static_cast<std::uint64_t>(span) ? table[at] : -1;
      out[i] = row;
      least = std::min(least, row);
    }
    smallest[static_cast<std::size_t>(t)] = least;
  });
  return *std::min_element(smallest.begin(), smallest.end());
}

void mark(const std::int32_t* rows, int stride, std::int64_t num_edges, bool* mask) {
  for_each_share(num_edges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      bool* flag = mask + rows[i * stride];
      if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) __atomic_store_n(flag, true, __ATOMIC_RELAXED);
    }
  });
}

namespace {

// So many identity matrices, side by side, as fit into a first-level cache.
std::vector<double> identities(int dim) {
  constexpr int kNumbers = 2048;
  const int size = dim * dim, count = std::max(1, kNumbers / std::max(size, 1));
  std::vector<double> result(static_cast<std::size_t>(count) * size, 0.0);
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < dim; ++k) result[static_cast<std::size_t>(i) * size + k * (dim + 1)] = 1.0;
  return result;
}

// Whether `count` numbers are, bit by bit, repetitions of `pattern`.
bool repeats(const double* numbers, std::int64_t count, const std::vector<double>& pattern) {
  const std::int64_t length = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < count; at += length)
    if (std::memcmp(numbers + at, pattern.data(), sizeof(double) * std::min(length, count - at)) != 0)
      return false;
  return true;
}

}  // namespace

Kind kind_of(const double* information, std::int64_t num, int dim, const std::int64_t* row) {
  const int size = dim * dim;
  std::atomic<int> kind{static_cast<int>(Kind::kIdentity)};
  const auto raise = [&kind](Kind to) {
    int present = kind.load(std::memory_order_relaxed);
    while (present < static_cast<int>(to) && !kind.compare_exchange_weak(present, static_cast<int>(to))) {
    }
  };
  constexpr std::int64_t kPiece = 1024;  // matrices between two looks at what other threads found
  const std::vector<double> ones = identities(dim);
  for_each_share(num, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kPiece) {
      if (kind.load(std::memory_order_relaxed) == static_cast<int>(Kind::kFull)) return;
      const std::int64_t last = std::min(first + kPiece, end);
      if (row == nullptr && repeats(information + first * size, (last - first) * size, ones)) continue;
      bool is_one = true, is_diagonal = true;
      for (std::int64_t i = first; i < last; ++i) {
        const double* one = information + (row == nullptr ? i : row[i]) * size;
        for (int k = 0; k < size; ++k) {
          const bool on_diagonal = k % (dim + 1) == 0;
          is_one &= !on_diagonal || one[k] == 1.0;
          is_diagonal &= on_diagonal || one[k] == 0.0;
        }
      }
      if (!is_diagonal) raise(Kind::kFull);
      if (!is_one) raise(Kind::kDiagonal);
    }
  });
  return static_cast<Kind>(kind.load());
}

bool all_finite(const double* numbers, std::int64_t size) {
  std::atomic<bool> found{true};
  for_each_share(size, [&](std::int64_t begin, std::int64_t end) {
    bool finite = true;
    for (std::int64_t i = begin; i < end; ++i)
      finite &= std::fabs(numbers[i]) <= std::numeric_limits<double>::max();
    if (!finite) found = false;
  });
  return found;
}

bool all_symmetric(const double* matrices, std::int64_t num, int dim) {
  std::atomic<bool> found{true};
  for_each_share(num, [&](std::int64_t begin, std::int64_t end) {
    bool symmetric = true;
    for (std::int64_t i = begin; i < end; ++i) {
      const double* one = matrices + i * dim * dim;
      for (int row = 1; row < dim; ++row)
        for (int column = 0; column < row; ++column)
          symmetric &= one[row * dim + column] == one[column * dim + row];
    }
    if (!symmetric) found = false;
  });
  return found;
}

void count_up(std::int64_t* out, std::int64_t size) {
  for_each_share(size,
                 [&](std::int64_t begin, std::int64_t end) { std::iota(out + begin, out + end, begin); });
}

void place_by_id(const std::int64_t* ids, std::int64_t size, std::int64_t low, std::int32_t* table,
                 std::optional<std::int32_t> value) {
  for_each_share(size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      table[ids[i] - low] = value.value_or(static_cast<std::int32_t>(i));
  });
}

template <class T>
std::optional<std::int64_t> common_step(const T* numbers, std::int64_t size) {
  if (size < 2) return std::nullopt;
  const auto step_at = [&](std::int64_t i) {
    return static_cast<std::int64_t>(numbers[i + 1]) - static_cast<std::int64_t>(numbers[i]);
  };
  const std::int64_t step = step_at(0);
  constexpr std::int64_t kPiece = 4096;  // numbers between two looks at what other threads found
  std::atomic<bool> is_common{true};
  for_each_share(size - 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end && is_common.load(std::memory_order_relaxed);
         first += kPiece) {
      bool all = true;
      for (std::int64_t i = first; i < std::min(first + kPiece, end); ++i) all &= step_at(i) == step;
      if (!all) is_common = false;
    }
  });
  return is_common ? std::optional(step) : std::nullopt;
}

template std::optional<std::int64_t> common_step(const std::int32_t*, std::int64_t);
template std::optional<std::int64_t> common_step(const std::uint32_t*, std::int64_t);
template std::optional<std::int64_t> common_step(const std::int64_t*, std::int64_t);

Couplings find_couplings(const std::int32_t* rows, int arity, std::int64_t num_edges,
                         const std::vector<const std::int64_t*>& table, std::int64_t num_kept,
                         std::int64_t num_eliminated, std::int64_t stride) {
  const std::size_t num_pairs = static_cast<std::size_t>(arity) * (arity - 1) / 2;
  const int shares = num_shares(num_edges);
  std::vector<Couplings> found(static_cast<std::size_t>(shares));
  for_each_share(num_edges, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    Couplings own;
    own.pairs.resize(num_pairs);
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(arity));
    for (std::int64_t i = begin; i < end; ++i) {
      int kept = 0;
      std::int64_t gone = -1;
      for (int a = 0; a < arity; ++a) {
        blocks[a] = table[a][rows[i * arity + a]];
        kept += blocks[a] >= 0 && blocks[a] < num_kept;
        if (blocks[a] >= num_kept) gone = blocks[a] - num_kept;
      }
      std::size_t pair = 0;
      for (int a = 0; a < arity; ++a)
        for (int b = a + 1; b < arity; ++b, ++pair) {
          if (blocks[a] < 0 || blocks[b] < 0) continue;
          ++own.pairs[pair].optimized;
          own.pairs[pair].eliminated += blocks[a] >= num_kept || blocks[b] >= num_kept;
        }
      if (stride == 0 || (gone < 0 ? kept < 2 : kept == 0 || gone % stride != 0)) continue;
      const std::int64_t place = gone < 0 ? num_eliminated / stride + 1 + i : gone / stride;
      for (int a = 0; a < arity; ++a)
        if (blocks[a] >= 0 && blocks[a] < num_kept)
          own.meetings.push_back({static_cast<std::int32_t>(place), static_cast<std::int32_t>(blocks[a])});
    }
    found[static_cast<std::size_t>(t)] = std::move(own);
  });
  Couplings all = std::move(found.front());
  for (std::size_t t = 1; t < found.size(); ++t) {
    for (std::size_t pair = 0; pair < num_pairs; ++pair) {
      all.pairs[pair].optimized += found[t].pairs[pair].optimized;
      all.pairs[pair].eliminated += found[t].pairs[pair].eliminated;
    }
    all.meetings.insert(all.meetings.end(), found[t].meetings.begin(), found[t].meetings.end());
  }
  return all;
}

}  // namespace graphopt::edges
