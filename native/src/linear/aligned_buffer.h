// Uninitialised array of doubles, aligned to cache lines; grows, never shrinks.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace graphopt {

class AlignedBuffer {
 public:
  double* data() { return data_.get(); }
  const double* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

  // At least `size` doubles. The content is undefined if it has to grow.
  void require(std::int64_t size) {
    if (size <= size_) return;
    const std::size_t bytes = (static_cast<std::size_t>(size) * sizeof(double) + 63) / 64 * 64;
    data_.reset();
    data_.reset(static_cast<double*>(std::aligned_alloc(64, bytes)));
    if (!data_) {
      size_ = 0;
      throw std::bad_alloc();
    }
    size_ = size;
  }

 private:
  struct Free {
    void operator()(double* p) const { std::free(p); }
  };
  std::unique_ptr<double, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace graphopt
