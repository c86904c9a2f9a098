// Reads and writes the values of a std::unordered_map that another library made, in place.
//
// The nodes of libstdc++ and libc++ are a singly linked list, each holding a key (uint64) and a value. Where
// next pointer, key and value are in a node is found out by the caller, from a map that it made and knows.
#pragma once

#include <cstdint>
#include <cstring>

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

}  // namespace graphopt
