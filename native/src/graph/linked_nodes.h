// Reads and writes the values of a std::unordered_map that another library made, in place.
//
// The nodes of libstdc++ and libc++ are a singly linked list, each holding a key (uint64) and a value. Where
// next pointer, key and value are in a node is found out by the caller, from a map that it made and knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace graphopt {

struct NodeLayout {
  int64_t next = 0;   // bytes from the start of a node to the pointer to the next one
  int64_t key = 0;    // bytes to the key
  int64_t value = 0;  // bytes to the three doubles
};

// Visits up to `count` nodes: visit(k, node). Returns how many there were, count + 1 for more.
template <class Visit>
int64_t walk_nodes(const char* node, int64_t count, const NodeLayout& layout, const Visit& visit) {
  int64_t found = 0;
  for (; node != nullptr; ++found) {
    if (found == count) return count + 1;
    visit(found, const_cast<char*>(node));
    std::memcpy(&node, node + layout.next, sizeof node);
  }
  return found;
}

// Distinct keys (non-negative) from smallest to largest: index of each; by a table where they are dense.
inline std::vector<int32_t> sorted_order(const std::vector<int64_t>& keys) {
  constexpr int64_t kDense = 16, kSmall = 1'000'000;
  const auto size = static_cast<int64_t>(keys.size());
  const auto [least, largest] = std::minmax_element(keys.begin(), keys.end());
  std::vector<int32_t> order(keys.size());
  if (size == 0 || *least < 0 || *largest >= kDense * size + kSmall) {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
    });
    return order;
  }
  std::vector<int32_t> index(static_cast<std::size_t>(*largest) + 1, -1);
  for (int64_t k = 0; k < size; ++k)
    index[static_cast<std::size_t>(keys[static_cast<std::size_t>(k)])] = static_cast<int32_t>(k);
  std::copy_if(index.begin(), index.end(), order.begin(), [](int32_t k) { return k >= 0; });
  return order;
}

}  // namespace graphopt
