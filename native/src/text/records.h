// Records of a binary file, each a head of fixed size that ends in a count (uint64, little endian) and as
// many elements of fixed size: COLMAP's points3D.bin.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace graphopt::text {

struct Records {
  std::vector<char> heads;      // one after the other
  std::vector<char> elements;   // of all records
  std::vector<int64_t> starts;  // (records + 1,) first element of each
  int64_t end = 0;              // byte behind the last whole record
};

// Reads `count` records from byte `first` on, fewer where the data end before.
inline Records split_records(std::string_view data, int64_t first, int64_t count, int64_t head_size,
                             int64_t element_size) {
  Records found;
  const auto size = static_cast<int64_t>(data.size());
  const int64_t count_size = sizeof(uint64_t);
  found.starts.push_back(0);
  found.end = first;
  std::vector<int64_t> offsets;
  for (int64_t k = 0; k < count; ++k) {
    if (size - found.end < head_size) break;
    uint64_t length = 0;
    std::memcpy(&length, data.data() + found.end + head_size - count_size, sizeof length);
    const int64_t left = (size - found.end - head_size) / element_size;
    if (length > static_cast<uint64_t>(left)) break;
    offsets.push_back(found.end);
    found.starts.push_back(found.starts.back() + static_cast<int64_t>(length));
    found.end += head_size + static_cast<int64_t>(length) * element_size;
  }
  const auto records = static_cast<int64_t>(offsets.size());
  found.heads.resize(static_cast<size_t>(records * head_size));
  found.elements.resize(static_cast<size_t>(found.starts.back() * element_size));
  for (int64_t k = 0; k < records; ++k) {
    const char* record = data.data() + offsets[static_cast<size_t>(k)];
    std::memcpy(found.heads.data() + k * head_size, record, static_cast<size_t>(head_size));
    const int64_t begin = found.starts[static_cast<size_t>(k)],
                  end = found.starts[static_cast<size_t>(k) + 1];
    if (end > begin)
      std::memcpy(found.elements.data() + begin * element_size, record + head_size,
                  static_cast<size_t>((end - begin) * element_size));
  }
  return found;
}

// The opposite; `heads` hold the counts already. `out` has room for all.
inline void join_records(std::string_view heads, std::string_view elements, const int64_t* starts,
                         int64_t records, int64_t head_size, int64_t element_size, char* out) {
  for (int64_t k = 0; k < records; ++k) {
    std::memcpy(out, heads.data() + k * head_size, static_cast<size_t>(head_size));
    out += head_size;
    const int64_t bytes = (starts[k + 1] - starts[k]) * element_size;
    if (bytes > 0) std::memcpy(out, elements.data() + starts[k] * element_size, static_cast<size_t>(bytes));
    out += bytes;
  }
}

}  // namespace graphopt::text
