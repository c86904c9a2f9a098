// Numbers that nobody has written yet: the threads that fill them touch their memory first.
#pragma once

#include <cstdint>
#include <memory>

namespace graphopt {

template <class T>
class PlainArray {
 public:
  explicit PlainArray(std::int64_t size = 0) : size_(size), data_(new T[static_cast<std::size_t>(size)]) {}

  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) const { return data_[static_cast<std::size_t>(i)]; }
  T& back() const { return (*this)[size_ - 1]; }
  T* begin() const { return data_.get(); }
  T* end() const { return data_.get() + size_; }

  // The memory, for who deletes it.
  T* release() { return data_.release(); }

 private:
  std::int64_t size_;
  std::unique_ptr<T[]> data_;
};

}  // namespace graphopt
