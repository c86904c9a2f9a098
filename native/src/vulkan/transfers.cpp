#include "vulkan/transfers.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "parallel/thread_pool.h"
#include "vulkan/device.h"

namespace graphopt::vulkan {
namespace {

constexpr std::uint64_t first_chunk = std::uint64_t{4} << 20, chunk_size = 2 * kPiece;
constexpr std::size_t max_chunks = 8;      // of a direction: 116 MiB
constexpr std::size_t max_travelling = 3;  // pieces of a download
constexpr std::uint64_t bytes_of_thread = std::uint64_t{256} << 10;
constexpr auto longest_hold = std::chrono::seconds(60);

constexpr VkPipelineStageFlags all_stages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;

void barrier(const DeviceApi& api, VkCommandBuffer commands) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  api.vkCmdPipelineBarrier(commands, all_stages, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &memory, 0, nullptr, 0,
                           nullptr);
}

// Ranges of buffers that copies of one submission write: those that overlap must follow each other.
class Written {
 public:
  // False where the range overlaps an earlier one.
  bool add(VkBuffer buffer, std::uint64_t begin, std::uint64_t end) {
    auto& ranges = ranges_[buffer];
    const auto after = ranges.lower_bound(begin);
    if (after != ranges.end() && after->first < end) return false;
    if (after != ranges.begin() && std::prev(after)->second > begin) return false;
    ranges.emplace_hint(after, begin, end);
    return true;
  }
  void clear() { ranges_.clear(); }

 private:
  std::map<VkBuffer, std::map<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace

void copy_bytes(char* to, const char* from, std::uint64_t size) {
  ThreadPool& pool = ThreadPool::instance();
  const auto shares = static_cast<int>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(pool.num_threads()), size / bytes_of_thread));
  if (shares < 2) {
    std::memcpy(to, from, size);
    return;
  }
  pool.run_shares(shares, [&](int share) {
    std::int64_t begin = 0, end = 0;
    partition(static_cast<std::int64_t>(size), share, shares, begin, end);
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

Transfers::~Transfers() {
  if (pool_ != VK_NULL_HANDLE) device_.api().vkDestroyCommandPool(device_.handle(), pool_, nullptr);
}

Chunk* Transfers::free_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size, Usage usage) {
  const std::uint64_t reached = device_.reached();
  for (auto& chunk : chunks) {
    if (chunk->open > 0 || chunk->noted || chunk->value > reached || chunk->range.size < size) continue;
    chunk->filled = 0;
    return chunk.get();
  }
  return try_new_chunk(chunks, size, usage);
}

Chunk* Transfers::try_new_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size,
                                Usage usage) {
  if (chunks.size() == max_chunks) return nullptr;
  auto chunk = std::make_unique<Chunk>();
  try {
    const bool is_small = chunks.empty() && size <= first_chunk;
    chunk->range = device_.memory().take_staging(is_small ? first_chunk : chunk_size, usage);
  } catch (const DeviceMemoryError&) {
    if (std::none_of(chunks.begin(), chunks.end(), [&](auto& one) { return one->range.size >= size; })) throw;
    return nullptr;  // those that are there have to do
  }
  chunks.push_back(std::move(chunk));
  return chunks.back().get();
}

Chunk* Transfers::wait_for_chunk(std::vector<std::unique_ptr<Chunk>>& chunks, std::uint64_t size, Usage usage,
                                 std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (Chunk* chunk = free_chunk(chunks, size, usage)) return chunk;
    if (!noted_.empty()) device_.submit_noted();
    std::uint64_t next = 0;
    for (auto& chunk : chunks) {
      if (chunk->open > 0 || chunk->noted || chunk->range.size < size) continue;
      next = next == 0 ? chunk->value : std::min(next, chunk->value);
    }
    if (next != 0) {
      lock.unlock();
      device_.wait_or_lose(next, "transfers");
      lock.lock();
    } else if (released_.wait_for(lock, longest_hold) == std::cv_status::timeout) {
      throw DeviceError("All staging memory of " + device_.physical().name +
                        " has been held for a minute by writers that do not finish.");
    }
  }
}

Staged Transfers::stage(std::uint64_t size) {
  if (size > kPiece) {
    throw DeviceError("A staged part has at most " + std::to_string(kPiece) + " bytes, " +
                      std::to_string(size) + " were asked for; write in pieces.");
  }
  device_.owner().require_this();
  std::unique_lock<std::mutex> lock(device_.queue_mutex());
  device_.require_present();
  if (current_ == nullptr || current_->filled + size > current_->range.size) {
    current_ = nullptr;
    current_ = wait_for_chunk(up_, size, Usage::upload, lock);
  }
  const Staged staged{current_, current_->filled, size};
  current_->filled += (size + 63) / 64 * 64;
  ++current_->open;
  return staged;
}

void Transfers::release(Chunk& chunk) {
  --chunk.open;
  released_.notify_all();
}

void Transfers::drop(const Staged& staged) {
  std::unique_lock<std::mutex> lock(device_.queue_mutex());
  release(*staged.chunk);
}

void Transfers::send(const Staged& staged, const std::shared_ptr<Buffer>& to,
                     const std::vector<Region>& regions) {
  for (const Region& region : regions) {
    if (region.source + region.size > staged.size || region.destination + region.size > to->size()) {
      drop(staged);
      throw DeviceError("Upload of " + std::to_string(region.size) + " bytes to place " +
                        std::to_string(region.destination) + " goes past the end of a buffer of " +
                        std::to_string(to->size()) + " bytes.");
    }
  }
  std::unique_lock<std::mutex> lock(device_.queue_mutex());
  release(*staged.chunk);
  for (Region region : regions) {
    if (region.size == 0) continue;
    region.source += staged.offset;
    noted_.push_back({staged.chunk, to, region});
    noted_bytes_ += region.size;
    staged.chunk->noted = true;
  }
  if (noted_bytes_ >= kPiece) device_.submit_noted();
}

void Transfers::upload(const std::shared_ptr<Buffer>& to, std::uint64_t offset, const char* from,
                       std::uint64_t size) {
  if (to->mapped() != nullptr) {
    device_.require_present();
    copy_bytes(to->mapped() + offset, from, size);
    return;
  }
  for (std::uint64_t at = 0; at < size; at += kPiece) {
    const Staged staged = stage(std::min(kPiece, size - at));
    copy_bytes(staged.data(), from + at, staged.size);
    send(staged, to, {{0, offset + at, staged.size}});
  }
}

void Transfers::flush() {
  std::unique_lock<std::mutex> lock(device_.queue_mutex());
  if (!noted_.empty()) device_.submit_noted();
}

VkCommandBuffer Transfers::begin(std::uint64_t value) {
  const DeviceApi& api = device_.api();
  if (pool_ == VK_NULL_HANDLE) {
    VkCommandPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT | VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
    info.queueFamilyIndex = device_.physical().queue_family;
    check(api.vkCreateCommandPool(device_.handle(), &info, nullptr, &pool_), "creating a command pool");
  }
  const std::uint64_t reached = device_.reached();
  auto known =
      std::find_if(commands_.begin(), commands_.end(), [&](auto& one) { return one.value <= reached; });
  if (known == commands_.end()) {
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = pool_;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    Commands fresh{VK_NULL_HANDLE, 0};
    check(api.vkAllocateCommandBuffers(device_.handle(), &info, &fresh.handle), "allocating commands");
    known = commands_.insert(commands_.end(), fresh);
  }
  known->value = value;
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(api.vkBeginCommandBuffer(known->handle, &info), "starting to record");
  barrier(api, known->handle);  // after everything submitted before
  return known->handle;
}

void Transfers::end(VkCommandBuffer commands) {
  check(device_.api().vkEndCommandBuffer(commands), "finishing a transfer");
}

VkCommandBuffer Transfers::take_noted(std::uint64_t value, std::vector<std::shared_ptr<Buffer>>& needed) {
  if (noted_.empty()) return VK_NULL_HANDLE;
  const DeviceApi& api = device_.api();
  const VkCommandBuffer commands = begin(value);
  Written written;
  std::vector<VkBufferCopy> copies;
  VkBuffer from = VK_NULL_HANDLE, to = VK_NULL_HANDLE;
  const auto copy = [&] {
    if (copies.empty()) return;
    api.vkCmdCopyBuffer(commands, from, to, static_cast<std::uint32_t>(copies.size()), copies.data());
    copies.clear();
  };
  for (const Noted& one : noted_) {
    one.chunk->noted = false;
    one.chunk->value = value;
    std::shared_ptr<Buffer> buffer = one.to.lock();
    if (!buffer) continue;
    const std::uint64_t place = buffer->offset() + one.region.destination;
    const bool is_free = written.add(buffer->handle(), place, place + one.region.size);
    if (!is_free || from != one.chunk->range.block->buffer || to != buffer->handle()) copy();
    if (!is_free) {
      barrier(api, commands);
      written.clear();
      written.add(buffer->handle(), place, place + one.region.size);
    }
    from = one.chunk->range.block->buffer;
    to = buffer->handle();
    copies.push_back({one.chunk->range.offset + one.region.source, place, one.region.size});
    if (needed.empty() || needed.back() != buffer) needed.push_back(std::move(buffer));
  }
  copy();
  end(commands);
  noted_.clear();
  noted_bytes_ = 0;
  return commands;
}

bool Transfers::download(const std::vector<Download>& wanted, double timeout_s) {
  std::vector<Travelling> queue;  // in order
  std::size_t next_in = 0;
  Travelling piece{};
  std::uint64_t filled = 0;
  bool is_there = true;
  const auto receive_next = [&] { is_there = receive(queue[next_in++], timeout_s) && is_there; };
  const auto send_piece = [&] {
    if (piece.parts.empty()) return;
    while (queue.size() - next_in >= max_travelling) receive_next();
    if (is_there) {
      send_back(piece);
      queue.push_back(std::move(piece));
    }
    piece = {};
    filled = 0;
  };
  try {
    for (const Download& one : wanted) {
      if (one.source->cached()) continue;
      for (std::uint64_t at = 0; at < one.size && is_there;) {
        const std::uint64_t size = std::min(kPiece - filled, one.size - at);
        piece.parts.push_back({filled, {one.source, one.offset + at, size, one.to + at}});
        filled += (size + 63) / 64 * 64;
        at += size;
        if (filled + 64 > kPiece) send_piece();
      }
    }
    send_piece();
    while (next_in < queue.size()) receive_next();
  } catch (...) {
    // What is still on its way keeps its chunk, which nobody takes before the device is done with it.
    std::unique_lock<std::mutex> lock(device_.queue_mutex());
    for (; next_in < queue.size(); ++next_in) release(*queue[next_in].chunk);
    throw;
  }
  return is_there && read_in_place(wanted, timeout_s);
}

bool Transfers::read_in_place(const std::vector<Download>& wanted, double timeout_s) {
  if (std::none_of(wanted.begin(), wanted.end(), [](auto& one) { return one.source->cached(); })) return true;
  flush();
  if (!device_.wait(device_.last_submitted(), timeout_s)) return false;
  for (const Download& one : wanted) {
    if (one.source->cached()) copy_bytes(one.to, one.source->mapped() + one.offset, one.size);
  }
  return true;
}

void Transfers::send_back(Travelling& travelling) {
  device_.owner().require_this();
  std::unique_lock<std::mutex> lock(device_.queue_mutex());
  device_.require_present();
  const auto& [place, last] = travelling.parts.back();
  travelling.chunk = wait_for_chunk(down_, place + last.size, Usage::readback, lock);
  const DeviceApi& api = device_.api();
  std::vector<std::shared_ptr<Buffer>> needed;
  const std::uint64_t value = device_.next_value();
  const VkCommandBuffer noted = take_noted(value, needed);
  const VkCommandBuffer commands = begin(value);
  for (const auto& [at, part] : travelling.parts) {
    const VkBufferCopy region{part.source->offset() + part.offset, travelling.chunk->range.offset + at,
                              part.size};
    api.vkCmdCopyBuffer(commands, part.source->handle(), travelling.chunk->range.block->buffer, 1, &region);
    needed.push_back(part.source);
  }
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  api.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                           &memory, 0, nullptr, 0, nullptr);
  end(commands);
  device_.submit_commands({noted, commands}, std::move(needed), nullptr);
  travelling.chunk->value = value;
  ++travelling.chunk->open;
}

bool Transfers::receive(Travelling& travelling, double timeout_s) {
  const auto give_back = [&](Chunk* chunk) {
    std::unique_lock<std::mutex> lock(device_.queue_mutex());
    release(*chunk);
  };
  const std::unique_ptr<Chunk, decltype(give_back)> held(travelling.chunk, give_back);
  if (!device_.wait(held->value, timeout_s)) return false;
  for (const auto& [at, part] : travelling.parts) {
    copy_bytes(part.to, held->range.mapped() + at, part.size);
  }
  return true;
}

}  // namespace graphopt::vulkan
