#include "edges/picking.h"

#include <cstring>
#include <numeric>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

template <class Row>
void take(const unsigned char* values, const std::int64_t* index, std::int64_t size, unsigned char* out) {
  for_each_share(size, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i)
      std::memcpy(out + i * std::int64_t{sizeof(Row)}, values + index[i] * std::int64_t{sizeof(Row)},
                  sizeof(Row));
  });
}

struct Bytes16 {
  std::uint64_t numbers[2];
};
struct Bytes32 {
  std::uint64_t numbers[4];
};

}  // namespace

void take_rows(const unsigned char* values, std::int64_t row_bytes, const std::int64_t* index,
               std::int64_t size, unsigned char* out) {
  if (row_bytes == 4) return take<std::uint32_t>(values, index, size, out);
  if (row_bytes == 8) return take<std::uint64_t>(values, index, size, out);
  if (row_bytes == 16) return take<Bytes16>(values, index, size, out);
  if (row_bytes == 32) return take<Bytes32>(values, index, size, out);
  const auto bytes = static_cast<std::size_t>(row_bytes);
  for_each_share(size, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) std::memcpy(out + i * row_bytes, values + index[i] * row_bytes, bytes);
  });
}

void put_rows(const unsigned char* values, std::int64_t row_bytes, const std::int64_t* index,
              std::int64_t size, unsigned char* target) {
  const auto bytes = static_cast<std::size_t>(row_bytes);
  for_each_share(size, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) std::memcpy(target + index[i] * row_bytes, values + i * row_bytes, bytes);
  });
}

void mark_chosen(const std::int32_t* rows, int stride, const std::int64_t* index, std::int64_t size,
                 bool* mask) {
  for_each_share(size, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {  // several threads may set the same flag
      bool* flag = mask + rows[index[i] * stride];
      if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) __atomic_store_n(flag, true, __ATOMIC_RELAXED);
    }
  });
}

std::vector<std::int64_t> places_of(const std::uint16_t* values, std::int64_t size, std::uint16_t value) {
  const int shares = num_shares(size);
  std::vector<std::int64_t> first(static_cast<std::size_t>(shares) + 1, 0);
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t i = begin; i < end; ++i) count += values[i] == value;
    first[static_cast<std::size_t>(t) + 1] = count;
  });
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::int64_t> places(static_cast<std::size_t>(first.back()));
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t* out = places.data() + first[static_cast<std::size_t>(t)];
    for (std::int64_t i = begin; i < end; ++i)
      if (values[i] == value) *out++ = i;
  });
  return places;
}

void number_slot(const std::int32_t* rows, int stride, std::int64_t num_edges, const std::int32_t* number,
                 const bool* gone, std::int32_t* kept, int kept_stride, std::int32_t* eliminated) {
  for_each_share(num_edges, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      const std::int32_t row = rows[i * stride];
      kept[i * kept_stride] = gone[row] ? -1 : number[row];
      if (gone[row]) eliminated[i] = number[row];
    }
  });
}

}  // namespace graphopt::edges
