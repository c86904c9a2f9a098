// Numbers that nobody has written yet: the threads that fill them touch their memory first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "parallel/large_pages.h"

namespace graphopt {

template <class T>
class PlainArray {
  static_assert(std::is_trivial_v<T>);

 public:
  explicit PlainArray(std::int64_t size = 0) : size_(size), data_(allocated(size)) {}

  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) const { return data_.get()[i]; }
  T& back() const { return (*this)[size_ - 1]; }
  T* begin() const { return data_.get(); }
  T* end() const { return data_.get() + size_; }

  // The memory, for who calls std::free.
  T* release() { return data_.release(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  static T* allocated(std::int64_t size) {
    const std::int64_t bytes = size * std::int64_t{sizeof(T)};
    void* const data = std::malloc(static_cast<std::size_t>(bytes > 0 ? bytes : 1));
    if (data == nullptr) throw std::bad_alloc();
    ask_for_large_pages(data, bytes);
    return static_cast<T*>(data);
  }

  std::int64_t size_;
  std::unique_ptr<T, Free> data_;
};

}  // namespace graphopt
