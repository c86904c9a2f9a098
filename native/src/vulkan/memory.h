// Device memory: few large blocks, sub-allocated with Tlsf. Each block is one VkBuffer, mapped once where the
// host can see it; a Buffer is a range of a block.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "vulkan/loader.h"
#include "vulkan/tlsf.h"

namespace graphopt::vulkan {

class Device;
class MemoryPool;

// device: only kernels touch it. upload: the host writes (and may read), the device copies from it. readback:
// the device copies into it, the host reads. shared: both work on it in place. exported: on the device, in
// memory of its own that another API may map. imported: of the host, given by `MemoryPool::import_host`.
enum class Usage { device, upload, readback, shared, exported, imported };

Usage usage_from_name(const std::string& name);
const char* usage_name(Usage usage);

struct MemoryBlock {
  Usage usage = Usage::device;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkBuffer buffer = VK_NULL_HANDLE;
  std::uint64_t size = 0, address = 0;  // [bytes]; address is 0 without buffer addresses
  std::uint64_t allocated = 0;          // [bytes] what the driver has given
  std::uint32_t heap = 0;
  char* mapped = nullptr;
  void* host = nullptr;  // of usage imported
  bool cached = false;   // the host reads it at full speed
  std::unique_ptr<Tlsf> ranges;
};

// A part of a block, without an owner.
struct MemoryRange {
  MemoryBlock* block = nullptr;
  std::uint64_t offset = 0, size = 0;  // [bytes]

  char* mapped() const { return block->mapped + offset; }
};

// Memory as another API takes it.
struct ExportedMemory {
  int descriptor = -1;      // of a file; who imports it owns it
  std::uint64_t bytes = 0;  // of the whole allocation; the buffer is at its start
};

// A range of device memory; returned to the pool when the last owner lets go of it.
class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, MemoryBlock* block, std::uint64_t offset, std::uint64_t size)
      : device_(std::move(device)), block_(block), offset_(offset), size_(size) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::uint64_t size() const { return size_; }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t address() const { return block_->address == 0 ? 0 : block_->address + offset_; }
  VkBuffer handle() const { return block_->buffer; }
  char* mapped() const { return block_->mapped == nullptr ? nullptr : block_->mapped + offset_; }
  Usage usage() const { return block_->usage; }
  bool cached() const { return block_->cached; }
  // Of a buffer with usage `exported`; each call makes a descriptor.
  ExportedMemory export_memory() const;
  Device& device() const { return *device_; }

 private:
  std::shared_ptr<Device> device_;
  MemoryBlock* block_;
  std::uint64_t offset_, size_;
};

// reserved: taken from the driver. cached: the part of it in blocks that nobody uses at the moment. staging:
// the part that the device's transfers hold; it counts as reserved, not as used.
struct MemoryStatistics {
  std::uint64_t reserved = 0, used = 0, peak_used = 0, cached = 0, staging = 0;  // [bytes]
  std::uint64_t blocks = 0, allocations = 0;
};

class MemoryPool {
 public:
  explicit MemoryPool(Device& device);
  ~MemoryPool();

  std::shared_ptr<Buffer> allocate(std::uint64_t size, Usage usage);
  // Memory of the host as a buffer, which several devices may have at a time. Address and size are multiples
  // of PhysicalDevice::host_alignment; the memory stays until the buffer goes.
  std::shared_ptr<Buffer> import_host(void* memory, std::uint64_t size);
  // Pinned memory of the device's transfers: kept until the pool goes.
  MemoryRange take_staging(std::uint64_t size, Usage usage);
  MemoryStatistics statistics() const;
  std::uint64_t free_bytes(std::uint32_t heap) const;  // what this process may still take
  // Give empty blocks back to the driver. Without it, some stay, up to `kept_bytes` per usage: taking memory
  // from a driver costs as much as filling it.
  void trim();

 private:
  friend class Buffer;
  MemoryRange take(std::uint64_t size, Usage usage);
  std::optional<MemoryRange> take_from_blocks(std::uint64_t size, Usage usage);
  void release(MemoryBlock* block, std::uint64_t offset);
  std::uint64_t kept_bytes(const MemoryBlock& like) const;
  MemoryBlock* new_block(std::uint64_t size, Usage usage, std::uint64_t asked, void* host = nullptr);
  MemoryBlock* new_shared_block(std::uint64_t block_size, Usage usage, std::uint64_t asked);
  void allocate_memory(MemoryBlock& block, std::uint64_t asked);
  void map(MemoryBlock& block);
  void drop_empty(Usage usage, std::uint64_t keep);
  void trim_locked();
  std::uint64_t empty_bytes(std::uint32_t heap) const;
  void destroy(MemoryBlock& block);
  std::uint32_t memory_type(Usage usage, std::uint32_t allowed) const;
  std::uint64_t free_locked(std::uint32_t heap) const;
  // asked: bytes of the buffer; needed: of the block for it; was_refused: by the driver, with this result.
  [[noreturn]] void out_of_memory(std::uint64_t asked, std::uint64_t needed, std::uint32_t heap,
                                  bool was_refused, VkResult result) const;

  Device& device_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryBlock>> blocks_;
  std::uint64_t used_ = 0, peak_used_ = 0, allocations_ = 0, staging_ = 0;
};

}  // namespace graphopt::vulkan
