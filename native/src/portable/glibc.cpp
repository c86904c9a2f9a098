// What this machine's headers, C++ library and unwinder expect of glibc and version 2.28 does not have, for
// modules that are linked against an old glibc's symbols (cmake/portable.cmake). All of it is hidden in the
// module. tools/wheel_symbols.py finds what is missing here.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#define GRAPHOPT_HIDDEN extern "C" __attribute__((visibility("hidden")))

extern "C" {
extern void* __dso_handle;
int __cxa_atexit(void (*function)(void*), void* argument, void* library);
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstat64(int version, int file, struct stat64* result);
}

namespace {

#ifdef __x86_64__
constexpr int STAT_VERSION = 1;
#else
constexpr int STAT_VERSION = 0;
#endif

// The loaded object that holds an address, and its table of exception frames.
struct Search {
  std::uintptr_t address;
  void* begin;
  void* end;
  void* eh_frame;
};

int look_into(dl_phdr_info* info, std::size_t, void* argument) {
  auto* search = static_cast<Search*>(argument);
  bool inside = false;
  void* frames = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(begin);
    if (header.p_type != PT_LOAD) continue;
    if (search->address < begin || search->address >= begin + header.p_memsz) continue;
    inside = true;
    search->begin = reinterpret_cast<void*>(begin);
    search->end = reinterpret_cast<void*>(begin + header.p_memsz);
  }
  search->eh_frame = frames;
  return inside && frames != nullptr ? 1 : 0;
}

}  // namespace

// Since glibc 2.32: a process has one thread, so that shared_ptr need not count atomically. False is always
// right.
GRAPHOPT_HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// Since 2.33; before, each call had the version of the structure as its first argument.
GRAPHOPT_HIDDEN int stat(const char* path, struct stat* result) noexcept {
  return __xstat(STAT_VERSION, path, result);
}
GRAPHOPT_HIDDEN int lstat(const char* path, struct stat* result) noexcept {
  return __lxstat(STAT_VERSION, path, result);
}
GRAPHOPT_HIDDEN int fstat64(int file, struct stat64* result) noexcept {
  return __fxstat64(STAT_VERSION, file, result);
}

// In every version, but in the part of glibc that is linked statically.
GRAPHOPT_HIDDEN int atexit(void (*function)()) noexcept {
  return __cxa_atexit(reinterpret_cast<void (*)(void*)>(function), nullptr, __dso_handle);
}

// Since 2.36: std::random_device asks it.
GRAPHOPT_HIDDEN std::uint32_t arc4random() noexcept {
  std::uint32_t result = 0;
  while (getrandom(&result, sizeof result, 0) != sizeof result) {
    if (errno != EINTR) abort();
  }
  return result;
}

// Since 2.30: std::condition_variable's waits until a time of the steady clock. Older ones wait by the clock
// of the day; the deadline is moved there. Who waits looks at the steady clock again, so a change of the
// day's clock only wakes it early, or late by as much.
GRAPHOPT_HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                           const timespec* deadline) {
  constexpr long BILLION = 1000000000L;
  timespec now{}, today{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &today);
  timespec moved{deadline->tv_sec - now.tv_sec + today.tv_sec,
                 deadline->tv_nsec - now.tv_nsec + today.tv_nsec};
  while (moved.tv_nsec < 0) {
    moved.tv_nsec += BILLION;
    --moved.tv_sec;
  }
  while (moved.tv_nsec >= BILLION) {
    moved.tv_nsec -= BILLION;
    ++moved.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &moved);
}

// Since 2.35: the unwinder's way from an address to the table of exception frames. 0: found.
GRAPHOPT_HIDDEN int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), nullptr, nullptr, nullptr};
  if (dl_iterate_phdr(look_into, &search) != 1) return -1;
  result->dlfo_flags = 0;
  result->dlfo_map_start = search.begin;
  result->dlfo_map_end = search.end;
  result->dlfo_link_map = nullptr;
  result->dlfo_eh_frame = search.eh_frame;
  return 0;
}
