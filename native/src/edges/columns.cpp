#include "edges/columns.h"

#include <algorithm>
#include <cstring>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

// put(number, place) for all numbers of blocks, column after column, on all threads.
template <class T, class Put>
void for_each_number(const std::vector<Columns<T>>& sources, const std::uint32_t* order,
                     std::int64_t num_edges, std::int64_t first_block, std::int64_t num_blocks,
                     const Put& put) {
  std::int64_t num_columns = 0;
  for (const Columns<T>& source : sources) num_columns += static_cast<std::int64_t>(source.columns.size());
  const int shares = num_shares(num_blocks * kBlock);
  for_each_share(num_blocks, shares, [&](int, std::int64_t begin, std::int64_t end) {
    const T* place[kBlock];
    for (std::int64_t block = begin; block < end; ++block) {
      std::int64_t at = block * num_columns * kBlock;
      for (const Columns<T>& source : sources) {
        for (int l = 0; l < kBlock; ++l) {
          const std::int64_t edge = order[std::min((first_block + block) * kBlock + l, num_edges - 1)];
          place[l] = source.data + (source.row == nullptr ? edge : source.row[edge]) * source.stride;
        }
        for (const int column : source.columns)
          for (int l = 0; l < kBlock; ++l) put(place[l][column], at++);
      }
    }
  });
}

std::uint64_t rotated(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

// The finalizer of MurmurHash3: a bijection.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

void add(Fingerprint& sum, std::uint64_t word) {
  sum.low = mixed(sum.low ^ word) + 0x9e3779b97f4a7c15ULL;
  sum.high = mixed(sum.high + rotated(word, 32) * 0xd6e8feb86659fd93ULL) ^ 0x632be59bd9b4e019ULL;
}

// Of whole words; each lane is changed by any change of one of its words.
Fingerprint of_words(const unsigned char* data, std::int64_t num_words) {
  constexpr int kLanes = 8;
  std::uint64_t lanes[kLanes], words[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(2 * j + 1);
  std::int64_t at = 0;
  for (; at + kLanes <= num_words; at += kLanes) {
    std::memcpy(words, data + 8 * at, sizeof words);
    for (int j = 0; j < kLanes; ++j) lanes[j] = rotated((lanes[j] ^ words[j]) * 0x9fb21c651e98df25ULL, 29);
  }
  Fingerprint sum;
  for (; at < num_words; ++at) {
    std::memcpy(words, data + 8 * at, 8);
    add(sum, words[0]);
  }
  for (const std::uint64_t lane : lanes) add(sum, lane);
  return sum;
}

// run(put) with put(number, place), which writes numbers of this width.
template <class Run>
void with_width(Width width, void* out, const Run& run) {
  double* wide = static_cast<double*>(out);
  float* narrow = static_cast<float*>(out);
  switch (width) {
    case Width::kFloat64:
      return run([wide](double x, std::int64_t at) { wide[at] = x; });
    case Width::kFloat32:
      return run([narrow](double x, std::int64_t at) { narrow[at] = static_cast<float>(x); });
    case Width::kTwoFloats:
      return run([narrow](double x, std::int64_t at) {
        const float high = static_cast<float>(x);
        narrow[2 * at] = high;
        narrow[2 * at + 1] = static_cast<float>(x - static_cast<double>(high));
      });
  }
}

}  // namespace

void block_rows(const std::vector<Columns<std::int32_t>>& sources, const std::uint32_t* order,
                std::int64_t num_edges, std::int64_t first_block, std::int64_t num_blocks,
                std::uint32_t* out) {
  for_each_number(sources, order, num_edges, first_block, num_blocks,
                  [out](std::int32_t row, std::int64_t at) { out[at] = static_cast<std::uint32_t>(row); });
}

void block_numbers(const std::vector<Columns<double>>& sources, const std::uint32_t* order,
                   std::int64_t num_edges, std::int64_t first_block, std::int64_t num_blocks, Width width,
                   void* out) {
  with_width(width, out, [&](const auto& put) {
    for_each_number(sources, order, num_edges, first_block, num_blocks, put);
  });
}

void pad_rows(const double* values, int columns, int record, const std::uint32_t* order,
              std::int64_t first_row, std::int64_t num_rows, Width width, void* out) {
  with_width(width, out, [&](const auto& put) {
    for_each_share(num_rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t row = order == nullptr ? first_row + at : order[first_row + at];
        for (int k = 0; k < record; ++k) put(k < columns ? values[row * columns + k] : 0.0, at * record + k);
      }
    });
  });
}

void unpad_rows(const void* records, int record, Width width, const std::uint32_t* order, const bool* chosen,
                std::int64_t num_rows, int columns, double* values) {
  const auto run = [&](const auto& number) {
    for_each_share(num_rows * columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = (begin + columns - 1) / columns; at * columns < end; ++at) {
        const std::int64_t row = order == nullptr ? at : order[at];
        if (chosen[row])
          for (int k = 0; k < columns; ++k) values[row * columns + k] = number(at * record + k);
      }
    });
  };
  if (width == Width::kFloat64)
    return run([from = static_cast<const double*>(records)](std::int64_t at) { return from[at]; });
  run([from = static_cast<const float*>(records)](std::int64_t at) {
    return static_cast<double>(from[2 * at]) + static_cast<double>(from[2 * at + 1]);
  });
}

void row_table(const std::int32_t* dims, const std::int64_t* offset, std::int64_t num_blocks,
               std::uint32_t* out) {
  std::vector<std::int64_t> first(static_cast<std::size_t>(num_blocks) + 1, 0);
  for (std::int64_t k = 0; k < num_blocks; ++k) first[k + 1] = first[k] + dims[k];
  for_each_share(num_blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      for (std::int32_t i = 0; i < dims[block]; ++i) {
        std::uint32_t* row = out + 3 * (first[block] + i);
        row[0] = static_cast<std::uint32_t>(offset[block] + i);
        row[1] = static_cast<std::uint32_t>(first[block]);
        row[2] = static_cast<std::uint32_t>(dims[block]);
      }
  });
}

Fingerprint fingerprint(const void* data, std::int64_t num_bytes) {
  constexpr std::int64_t kChunkWords = 1 << 13;
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  const std::int64_t num_words = num_bytes / 8, num_chunks = (num_words + kChunkWords - 1) / kChunkWords;
  std::vector<Fingerprint> chunks(static_cast<std::size_t>(num_chunks));
  const int shares = num_shares(num_words);
  for_each_share(num_chunks, shares, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      chunks[static_cast<std::size_t>(k)] =
          of_words(bytes + 8 * k * kChunkWords, std::min(kChunkWords, num_words - k * kChunkWords));
  });
  Fingerprint sum;
  add(sum, static_cast<std::uint64_t>(num_bytes));
  for (const Fingerprint& one : chunks) {
    add(sum, one.low);
    add(sum, one.high);
  }
  std::uint64_t rest = 0;
  if (num_bytes % 8 != 0) std::memcpy(&rest, bytes + 8 * num_words, static_cast<std::size_t>(num_bytes % 8));
  add(sum, rest);
  return sum;
}

}  // namespace graphopt::edges
