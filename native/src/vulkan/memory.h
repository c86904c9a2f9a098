// Device memory: few large blocks, sub-allocated with Tlsf. Each block is one VkBuffer, mapped once where the
// host can see it; a Buffer is a range of a block.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vulkan/loader.h"
#include "vulkan/tlsf.h"

namespace graphopt::vulkan {

class Device;
class MemoryPool;

// device: only kernels touch it. upload: the host writes (and may read), the device copies from it. readback:
// the device copies into it, the host reads. shared: both work on it in place.
enum class Usage { device, upload, readback, shared };

Usage usage_from_name(const std::string& name);
const char* usage_name(Usage usage);

struct MemoryBlock {
  Usage usage = Usage::device;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkBuffer buffer = VK_NULL_HANDLE;
  std::uint64_t size = 0, address = 0;  // [bytes]; address is 0 without buffer addresses
  std::uint32_t heap = 0;
  char* mapped = nullptr;
  std::unique_ptr<Tlsf> ranges;
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
  Device& device() const { return *device_; }

 private:
  std::shared_ptr<Device> device_;
  MemoryBlock* block_;
  std::uint64_t offset_, size_;
};

struct MemoryStatistics {
  std::uint64_t reserved = 0, used = 0, peak_used = 0;  // [bytes]
  std::uint64_t blocks = 0, allocations = 0;
};

class MemoryPool {
 public:
  explicit MemoryPool(Device& device);
  ~MemoryPool();

  std::shared_ptr<Buffer> allocate(std::uint64_t size, Usage usage);
  MemoryStatistics statistics() const;
  std::uint64_t free_bytes(std::uint32_t heap) const;  // what this process may still take
  void trim();                                         // give empty blocks back to the driver

 private:
  friend class Buffer;
  void release(MemoryBlock* block, std::uint64_t offset);
  MemoryBlock* new_block(std::uint64_t size, Usage usage, std::uint64_t asked);
  void destroy(MemoryBlock& block);
  std::uint32_t memory_type(Usage usage, std::uint32_t allowed) const;
  std::uint64_t free_locked(std::uint32_t heap) const;
  [[noreturn]] void out_of_memory(std::uint64_t asked, std::uint32_t heap, const std::string& why) const;

  Device& device_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryBlock>> blocks_;
  std::uint64_t used_ = 0, peak_used_ = 0, allocations_ = 0;
};

}  // namespace graphopt::vulkan
