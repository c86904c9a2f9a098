// Connected components of an undirected graph: union-find with path halving.
#pragma once

#include <cstdint>

namespace graphopt {

// `root` (n,) is the caller's. The smaller root always wins, so no ranks are needed for the answer; path
// halving alone bounds a find by O(log n) amortised.
class Components {
 public:
  Components(std::int64_t* root, std::int64_t count) : root_(root), count_(count) {
    for (std::int64_t i = 0; i < count; ++i) root_[i] = i;
  }
  void join(std::int64_t first, std::int64_t second) {
    const std::int64_t a = find(first), b = find(second);
    root_[a > b ? a : b] = a > b ? b : a;
  }
  // After the last `join`: root[i] is the smallest number of the component of i.
  void flatten() {
    // a root is never larger than what it stands for, so one pass in ascending order is enough
    for (std::int64_t i = 0; i < count_; ++i) root_[i] = root_[root_[i]];
  }

 private:
  std::int64_t find(std::int64_t i) {
    while (root_[i] != i) i = root_[i] = root_[root_[i]];
    return i;
  }

  std::int64_t* const root_;
  const std::int64_t count_;
};

}  // namespace graphopt
