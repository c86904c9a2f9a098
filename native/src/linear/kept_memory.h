// Memory of large arrays that were released, kept for the next ones.
//
// What the system hands out anew has to be cleared and mapped page by page when it is first written to, which
// takes longer than computing the numbers that go there. Problems that follow each other, such as windows of
// a SLAM system, need arrays of about the same size again and again.
#pragma once

#include <cstdint>
#include <mutex>
#include <type_traits>
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

// Numbers that nobody has written yet, in such memory, for as long as it lives.
template <class T>
class KeptArray {
  static_assert(std::is_trivial_v<T>);

 public:
  explicit KeptArray(std::int64_t size)
      : size_(size),
        piece_(KeptMemory::instance().take((size * std::int64_t{sizeof(T)} + 7) / 8)),
        data_(reinterpret_cast<T*>(piece_.data)) {}
  ~KeptArray() { KeptMemory::instance().give_back(piece_); }
  KeptArray(const KeptArray&) = delete;
  KeptArray& operator=(const KeptArray&) = delete;

  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

 private:
  const std::int64_t size_;
  const KeptMemory::Piece piece_;
  T* const data_;
};

}  // namespace graphopt
