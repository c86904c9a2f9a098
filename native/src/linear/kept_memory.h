// Memory of large arrays that were released, kept for the next ones.
//
// What the system hands out anew has to be cleared and mapped page by page when it is first written to, which
// takes longer than computing the numbers that go there. Problems that follow each other, such as windows of
// a SLAM system, need arrays of about the same size again and again.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace graphopt {

class KeptMemory {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;  // that are kept at any time

  // One per process; it is never destroyed, since arrays may outlive everything else.
  static KeptMemory& instance();

  struct Piece {
    double* data = nullptr;
    std::int64_t bytes = 0;
  };

  // At least `size` numbers, aligned to cache lines, not cleared. Throws std::bad_alloc.
  Piece take(std::int64_t size);
  // Gives a piece back, from any thread.
  void give_back(Piece piece);
  // Bytes that are kept at present.
  std::int64_t bytes();

 private:
  std::mutex mutex_;
  std::vector<Piece> kept_;  // the longest unused first
};

}  // namespace graphopt
