// Numbers that nobody has written yet: the threads that fill them touch their memory first.
//
// Memory that the system hands out anew is mapped page by page as it is first written to, which can take
// longer than computing what goes there; long arrays ask for large pages, as numpy's do.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

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
    constexpr std::uintptr_t kPage = 4096, kLong = 1 << 22;  // bytes
    const auto bytes = static_cast<std::uintptr_t>(size) * sizeof(T);
    void* const data = std::malloc(bytes > 0 ? bytes : 1);
    if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (bytes >= kLong) {
      const auto begin = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
      const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // an advice: it may be refused
    }
#endif
    return static_cast<T*>(data);
  }

  std::int64_t size_;
  std::unique_ptr<T, Free> data_;
};

}  // namespace graphopt
