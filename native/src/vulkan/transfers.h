// Arrays on their way to a device and back, through pinned memory that lives as long as the device.
//
//   upload    host -> staging chunk (by several threads), the copy to the buffer is noted; noted copies
//   travel
//             in front of the next program, or as soon as kPiece bytes of them wait. Nobody waits for them: a
//             queue runs submissions in order.
//   download  device -> staging chunk, a few pieces in flight, staging chunk -> host by several threads
//
// A buffer that the host sees is written in place, at once, and read in place where the host's caches hold
// it.
//
// Each direction has a few chunks, made when they are needed and then kept. A chunk is written again
// once the device has finished everything that reads it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "vulkan/memory.h"

namespace graphopt::vulkan {

inline constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;  // [bytes] copied while the last one travels

// Copy by several threads where that pays.
void copy_bytes(char* to, const char* from, std::uint64_t size);

struct Chunk {
  MemoryRange range;
  std::uint64_t filled = 0;  // [bytes] given out
  std::uint64_t value = 0;   // of the timeline, from which on the device is done with it
  int open = 0;              // parts that somebody writes or reads
  bool noted = false;        // copies from it wait for a submission
};

// A part of a chunk that the host may write.
struct Staged {
  Chunk* chunk = nullptr;
  std::uint64_t offset = 0, size = 0;  // [bytes] in the chunk

  char* data() const { return chunk->range.mapped() + offset; }
};

struct Region {
  std::uint64_t source = 0, destination = 0, size = 0;  // [bytes] in the staged part, in the buffer
};

struct Download {
  std::shared_ptr<Buffer> source;
  std::uint64_t offset = 0, size = 0;  // [bytes]
  char* to = nullptr;
};

// Not for use without the device, which holds `mutex` around the methods that say so.
class Transfers {
 public:
  explicit Transfers(Device& device) : device_(device) {}
  ~Transfers();

  // At most kPiece bytes to write, then to be passed to `send` or `drop`.
  Staged stage(std::uint64_t size);
  // Note copies from a staged part; they happen before every program that is submitted from now on.
  void send(const Staged& staged, const std::shared_ptr<Buffer>& to, const std::vector<Region>& regions);
  void drop(const Staged& staged);
  void upload(const std::shared_ptr<Buffer>& to, std::uint64_t offset, const char* from, std::uint64_t size);
  void flush();

  // Everything at once: waits until it has arrived. False after timeout_s seconds without an answer.
  bool download(const std::vector<Download>& wanted, double timeout_s);

  // With the device's mutex held: the noted copies as commands (null where there are none), and what they
  // need until they are done.
  VkCommandBuffer take_noted(std::uint64_t value, std::vector<std::shared_ptr<Buffer>>& needed);

 private:
  struct Noted {
    Chunk* chunk;
    std::weak_ptr<Buffer> to;  // a buffer that nobody has any more needs no contents
    Region region;             // source: in the chunk
  };
  struct Commands {
    VkCommandBuffer handle;
    std::uint64_t value;
  };
  struct Travelling {  // a part of a download
    Chunk* chunk;
    std::vector<std::pair<std::uint64_t, Download>> parts;  // place in the chunk, where it goes
  };

  Chunk* free_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size, Usage usage);
  Chunk* try_new_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size, Usage usage);
  Chunk* wait_for_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size, Usage usage,
                        std::unique_lock<std::mutex>& lock);
  VkCommandBuffer begin(std::uint64_t value);
  void end(VkCommandBuffer commands);
  void send_back(Travelling& travelling);
  bool read_in_place(const std::vector<Download>& wanted, double timeout_s);
  bool receive(Travelling& travelling, double timeout_s);
  void release(Chunk& chunk);

  Device& device_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<Commands> commands_;
  std::vector<std::unique_ptr<Chunk>> up_, down_;
  Chunk* current_ = nullptr;
  std::vector<Noted> noted_;
  std::uint64_t noted_bytes_ = 0;
  std::condition_variable released_;
};

}  // namespace graphopt::vulkan
