// CUDA's driver and NCCL, as far as graphopt calls them, on the memory of a software driver.
//
// llvmpipe exports memory as a file: "importing" maps it, so that a test sees in a rank's buffers what the
// others have sent, through the very calls that a GPU would get. Ranks, threads or processes, meet in a piece
// of shared memory that the unique id names. A collective runs in a thread of its stream, and takes its time:
// who does not wait for it reads old numbers.
//
// FAKE_CUDA_UUIDS: of the devices, 32 hexadecimal digits each, separated by commas.
// FAKE_NCCL_FAULT: name of a call that fails.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t room = std::size_t{64} << 20;  // [bytes] of all ranks' data in one collective

struct MemoryDescription {
  int type, padding, fd, more;
  void* unused;
  unsigned long long size;
  unsigned flags, reserved[16];
};
struct BufferDescription {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
};
struct Mapped {
  char* data;
  std::size_t header, length;
};
struct UniqueId {
  char bytes[128];
};
struct Meeting {  // in shared memory, zeros at first
  std::atomic<unsigned> arrived, round, is_broken;
  char data[];
};
struct Rank {
  Meeting* meeting;
  unsigned size, rank;
  std::string name;
};

struct Stream {
  std::thread work;
  std::atomic<int> state{0};  // of CUDA: 0, not ready, or an error
};

void rest(long nanoseconds) {
  const timespec pause{0, nanoseconds};
  nanosleep(&pause, nullptr);
}

bool fails(const char* call) {
  const char* told = std::getenv("FAKE_NCCL_FAULT");
  return told != nullptr && std::strcmp(told, call) == 0;
}

std::vector<std::string> uuids() {
  std::vector<std::string> found;
  const char* told = std::getenv("FAKE_CUDA_UUIDS");
  for (std::string rest = told == nullptr ? "" : told; rest.size() >= 32;) {
    std::string bytes;
    for (int k = 0; k < 16; ++k) {
      bytes.push_back(static_cast<char>(std::stoi(rest.substr(static_cast<std::size_t>(2 * k), 2), nullptr, 16)));
    }
    found.push_back(bytes);
    rest = rest.size() > 33 ? rest.substr(33) : "";
  }
  return found;
}

bool wait_for_all(Rank* rank) {  // false: aborted, or nobody came for a minute
  Meeting& meeting = *rank->meeting;
  const unsigned round = meeting.round.load();
  if (meeting.arrived.fetch_add(1) + 1 == rank->size) {
    meeting.arrived.store(0);
    meeting.round.fetch_add(1);
  }
  for (int k = 0; meeting.round.load() == round; ++k) {
    if (meeting.is_broken.load() != 0 || k > 600000) return false;
    rest(100000);
  }
  return meeting.is_broken.load() == 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return fails("cuInit") ? 100 : 0; }
int cuGetErrorName(int code, const char** name) {
  *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(uuids().size());
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetUuid_v2(char* uuid, int device) {
  std::memcpy(uuid, uuids().at(static_cast<std::size_t>(device)).data(), 16);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device + 1));
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuStreamCreate(Stream** stream, unsigned) {
  *stream = new Stream;
  return 0;
}
int cuStreamDestroy_v2(Stream* stream) {
  if (stream->work.joinable()) stream->work.join();
  delete stream;
  return 0;
}
int cuStreamQuery(Stream* stream) { return fails("cuStreamQuery") ? 999 : stream->state.load(); }
int cuImportExternalMemory(void** memory, const MemoryDescription* description) {
  if (description->type != 1 || fails("cuImportExternalMemory")) return 999;
  struct stat status {};
  if (fstat(description->fd, &status) != 0) return 999;
  const auto length = static_cast<std::size_t>(status.st_size);
  if (length < description->size) return 999;
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, description->fd, 0);
  if (data == MAP_FAILED) return 999;
  close(description->fd);  // it is CUDA's from now on
  *memory = new Mapped{static_cast<char*>(data), (length - description->size) / 4096 * 4096, length};  // Mesa's header
  return 0;
}
int cuExternalMemoryGetMappedBuffer(std::uint64_t* pointer, void* memory, const BufferDescription* which) {
  auto* mapped = static_cast<Mapped*>(memory);
  if (mapped->header + which->offset + which->size > mapped->length) return 999;
  *pointer = reinterpret_cast<std::uint64_t>(mapped->data + mapped->header + which->offset);
  return 0;
}
int cuDestroyExternalMemory(void* memory) {
  auto* mapped = static_cast<Mapped*>(memory);
  munmap(mapped->data, mapped->length);
  delete mapped;
  return 0;
}
int cuMemFree_v2(std::uint64_t) { return 0; }

int ncclGetVersion(int* version) {
  *version = 22803;
  return 0;
}
const char* ncclGetErrorString(int) { return "a fault that was asked for"; }
int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<unsigned> number{0};
  std::snprintf(id->bytes, sizeof id->bytes, "/graphopt-fake-nccl-%d-%u", getpid(), number++);
  return fails("ncclGetUniqueId") ? 2 : 0;
}
int ncclCommInitRank(Rank** made, int size, UniqueId id, int rank) {
  if (fails("ncclCommInitRank")) return 2;
  const int file = shm_open(id.bytes, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(Meeting) + room) != 0) return 2;
  void* data = mmap(nullptr, sizeof(Meeting) + room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (data == MAP_FAILED) return 2;
  *made = new Rank{static_cast<Meeting*>(data), static_cast<unsigned>(size), static_cast<unsigned>(rank), id.bytes};
  const bool met = wait_for_all(*made);
  shm_unlink(id.bytes);
  return met ? 0 : 2;
}
int ncclAllGather(const void* mine, void* all, std::size_t count, int type, Rank* rank, Stream* stream) {
  const std::size_t bytes = count * (type == 8 ? 8 : type == 7 ? 4 : 1);
  if (fails("ncclAllGather") || bytes * rank->size > room) return 3;
  if (stream->work.joinable()) stream->work.join();  // one after the other
  stream->state.store(600);
  stream->work = std::thread([=] {
    rest(300000);
    std::memcpy(rank->meeting->data + bytes * rank->rank, mine, bytes);
    bool met = wait_for_all(rank);
    if (met) std::memcpy(all, rank->meeting->data, bytes * rank->size);
    met = met && wait_for_all(rank);
    stream->state.store(met ? 0 : 999);
  });
  return 0;
}
int ncclCommAbort(Rank* rank) {
  rank->meeting->is_broken.store(1);
  return 0;  // others may still look at it
}
int ncclCommDestroy(Rank* rank) {
  munmap(rank->meeting, sizeof(Meeting) + room);
  delete rank;
  return 0;
}
}
