// Uninitialised array of doubles, aligned to cache lines; grows, never shrinks. Its memory is kept for the
// next one.
#pragma once

#include <cstdint>
#include <utility>

#include "linear/kept_memory.h"

namespace graphopt {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : piece_(std::exchange(other.piece_, {})), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(piece_, other.piece_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer() { release(); }

  double* data() { return piece_.data; }
  const double* data() const { return piece_.data; }
  std::int64_t size() const { return size_; }

  // At least `size` doubles. The content is undefined if it has to grow. Throws std::bad_alloc.
  void require(std::int64_t size) {
    if (size <= size_) return;
    release();
    piece_ = KeptMemory::instance().take(size);
    size_ = size;
  }

 private:
  void release() {
    if (piece_.data != nullptr) KeptMemory::instance().give_back(std::exchange(piece_, {}));
    size_ = 0;
  }

  KeptMemory::Piece piece_;
  std::int64_t size_ = 0;
};

}  // namespace graphopt
