// Memory that the system hands out anew is mapped page by page as it is first written to, which can take
// longer than computing what goes there; long arrays ask for large pages, as numpy's do.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace graphopt {

inline void ask_for_large_pages([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::int64_t kLong = 1 << 22;  // bytes
  if (bytes < kLong) return;
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (first + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (first + static_cast<std::uintptr_t>(bytes)) / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // an advice: it may be refused
#endif
}

}  // namespace graphopt
