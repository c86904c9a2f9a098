// Preloaded into a process under test: makes one allocation, or one call that touches a file, fail.
//
// Allocations count where they are large enough and come from chosen code (ranges of addresses); file calls
// where their path lies in a chosen folder. `fail_arm(kind, at, error)` lets number `at` of these fail. Armed
// with kLearn, code that allocates `fail_from` bytes is chosen.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Kind { kNone = 0, kMemory = 1, kFile = 2, kLearn = 3 };
std::atomic<int> armed{kNone};
std::atomic<long> seen{0};
std::atomic<int> fired{0};
long fail_at = -1;
int fail_error = 0;
size_t least = 0;
char folder[4096] = "";
struct Range {
  uintptr_t begin, end;
} ranges[64];
int num_ranges = 0;
char last[256] = "";  // what was made to fail

bool turn(Kind kind, const char* what, const void* caller = nullptr) {
  if (seen.fetch_add(1) != fail_at) return false;
  fired = 1;
  Dl_info info;
  const bool known = caller != nullptr && dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
  snprintf(last, sizeof last, "%s %s", what, known ? info.dli_fname : "");
  if (kind == kFile) errno = fail_error;
  return true;
}

bool counts(size_t size, const void* caller) {
  const int kind = armed.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<uintptr_t>(caller);
  if (kind == kLearn && size == least && num_ranges < 64) ranges[num_ranges++] = {address, address + 1};
  if (kind != kMemory || size < least) return false;
  for (int i = 0; i < num_ranges; ++i) {
    if (ranges[i].begin <= address && address < ranges[i].end) return true;
  }
  return num_ranges == 0;
}

bool inside(const char* path) {
  return path != nullptr && folder[0] != 0 && strncmp(path, folder, strlen(folder)) == 0;
}

bool inside(int fd) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(name, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = 0;
  return inside(path);
}

template <class Where>
bool refuses(const char* what, Where where) {
  const int kept = errno;
  const bool refused = armed.load(std::memory_order_relaxed) == kFile && inside(where) && turn(kFile, what);
  if (!refused) errno = kept;
  return refused;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void fail_arm(int kind, long at, int error) {
  seen = 0;
  fired = 0;
  fail_at = at;
  fail_error = error;
  last[0] = 0;
  armed = kind;
}
int fail_disarm() {
  armed = kNone;
  return fired;
}
long fail_seen() { return seen; }
const char* fail_last() { return last; }
void fail_in_folder(const char* path) { snprintf(folder, sizeof folder, "%s", path); }
void fail_from(size_t bytes) { least = bytes; }
void fail_in_range(uintptr_t begin, uintptr_t end) {
  if (num_ranges < 64) ranges[num_ranges++] = {begin, end};
}

void* malloc(size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "malloc", __builtin_return_address(0))) return nullptr;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (counts(count * size, __builtin_return_address(0)) && turn(kMemory, "calloc", __builtin_return_address(0))) return nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "realloc", __builtin_return_address(0))) return nullptr;
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "aligned_alloc", __builtin_return_address(0))) return nullptr;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "posix_memalign", __builtin_return_address(0))) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

#define OPENING(name)                                                          \
  int name(const char* path, int flags, ...) {                                 \
    va_list list;                                                              \
    va_start(list, flags);                                                     \
    const mode_t mode = va_arg(list, mode_t);                                  \
    va_end(list);                                                              \
    if (refuses("open", path)) return -1;                                      \
    static const auto call = next<int (*)(const char*, int, mode_t)>(#name);   \
    return call(path, flags, mode);                                            \
  }
OPENING(open)
OPENING(open64)
#undef OPENING

#define CALLING(result, name, what, where, types, names)  \
  result name types {                                     \
    if (refuses(what, where)) return -1;                  \
    static const auto call = next<result(*) types>(#name); \
    return call names;                                    \
  }
CALLING(ssize_t, write, "write", fd, (int fd, const void* data, size_t size), (fd, data, size))
CALLING(ssize_t, writev, "write", fd, (int fd, const struct iovec* parts, int count), (fd, parts, count))
CALLING(ssize_t, pwrite, "write", fd, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at))
CALLING(ssize_t, read, "read", fd, (int fd, void* data, size_t size), (fd, data, size))
CALLING(ssize_t, pread, "read", fd, (int fd, void* data, size_t size, off_t at), (fd, data, size, at))
CALLING(int, fsync, "fsync", fd, (int fd), (fd))
CALLING(int, fdatasync, "fsync", fd, (int fd), (fd))
CALLING(int, ftruncate, "truncate", fd, (int fd, off_t size), (fd, size))
CALLING(int, rename, "rename", to, (const char* from, const char* to), (from, to))
CALLING(int, renameat2, "rename", to,
        (int a, const char* from, int b, const char* to, unsigned flags), (a, from, b, to, flags))
CALLING(int, mkdir, "mkdir", path, (const char* path, mode_t mode), (path, mode))
CALLING(int, unlink, "unlink", path, (const char* path), (path))
#undef CALLING

}  // extern "C"

// The C++ library of the process may be a shared one: then its callers are who asks.
void* operator new(size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "new", __builtin_return_address(0))) throw std::bad_alloc();
  void* memory = __libc_malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) {
  if (counts(size, __builtin_return_address(0)) && turn(kMemory, "new", __builtin_return_address(0))) throw std::bad_alloc();
  void* memory = __libc_malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
