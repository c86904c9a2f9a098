#include "vulkan/memory.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "vulkan/device.h"

namespace graphopt::vulkan {
namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t smallest_block = 16 * MiB, largest_block = 256 * MiB;
constexpr std::array<Usage, 5> every_usage = {Usage::device, Usage::upload, Usage::readback, Usage::shared,
                                              Usage::exported};
constexpr std::uint64_t most_kept_on_device = 4096 * MiB, most_kept_on_host = 256 * MiB;

std::uint64_t rounded(std::uint64_t size) {
  return (size + Tlsf::granularity - 1) / Tlsf::granularity * Tlsf::granularity;
}

std::string human(std::uint64_t bytes) {
  char text[32];
  if (bytes < MiB) {
    std::snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / MiB);
  }
  return text;
}

// Property flags in order of preference; the first that some memory type has is taken.
std::vector<VkMemoryPropertyFlags> preferences(Usage usage) {
  constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags host =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  switch (usage) {
    case Usage::device:
      return {local, 0};
    case Usage::exported:
      return {local};
    case Usage::imported:
      return {host | cached, host, 0};
    case Usage::upload:
      return {host | cached, host};
    case Usage::readback:
      return {host | cached, host};
    case Usage::shared:
      return {local | host | cached, local | host, host | cached, host};
  }
  return {0};
}

}  // namespace

Usage usage_from_name(const std::string& name) {
  for (Usage usage : every_usage) {
    if (name == usage_name(usage)) return usage;
  }
  throw DeviceError("Buffer usage '" + name +
                    "' is unknown; expected device, upload, readback, shared or exported.");
}

const char* usage_name(Usage usage) {
  constexpr std::array<const char*, 6> names = {"device", "upload",   "readback",
                                                "shared", "exported", "imported"};
  return names[static_cast<std::size_t>(usage)];
}

Buffer::~Buffer() {
  if (!device_->is_inherited()) device_->memory().release(block_, offset_);
}

ExportedMemory Buffer::export_memory() const {
  device_->owner().require_this();
  if (usage() != Usage::exported) {
    throw DeviceError(std::string("A '") + usage_name(usage()) +
                      "' buffer has no memory of its own to export; allocate it with usage 'exported'.");
  }
  VkMemoryGetFdInfoKHR info{};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR;
  info.memory = block_->memory;
  info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  ExportedMemory out;
  check(device_->api().vkGetMemoryFdKHR(device_->handle(), &info, &out.descriptor), "exporting memory");
  out.bytes = block_->allocated;
  return out;
}

MemoryPool::MemoryPool(Device& device) : device_(device) {}

MemoryPool::~MemoryPool() {
  for (auto& block : blocks_) destroy(*block);
}

std::shared_ptr<Buffer> MemoryPool::allocate(std::uint64_t size, Usage usage) {
  device_.owner().require_this();
  size = std::max<std::uint64_t>(size, 4);
  device_.release_finished();
  MemoryRange range;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    range = take(size, usage);
    used_ += rounded(size);
    peak_used_ = std::max(peak_used_, used_);
    ++allocations_;
  }
  return std::make_shared<Buffer>(device_.shared_from_this(), range.block, range.offset, size);
}

std::shared_ptr<Buffer> MemoryPool::import_host(void* memory, std::uint64_t size) {
  device_.owner().require_this();
  const std::uint64_t alignment = device_.physical().host_alignment;
  if (alignment == 0) {
    throw DeviceError("The driver of " + device_.physical().name +
                      " does not work on memory of the host (VK_EXT_external_memory_host).");
  }
  if (size == 0 || size % alignment != 0 || reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
    throw DeviceError("Memory of the host to import begins and ends at multiples of " +
                      std::to_string(alignment) + " bytes; got " + std::to_string(size) + " bytes.");
  }
  MemoryRange range;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    range.block = new_block(size, Usage::imported, size, memory);
    range.offset = *range.block->ranges->allocate(size);
    used_ += rounded(size);
    peak_used_ = std::max(peak_used_, used_);
    ++allocations_;
  }
  return std::make_shared<Buffer>(device_.shared_from_this(), range.block, range.offset, size);
}

MemoryRange MemoryPool::take_staging(std::uint64_t size, Usage usage) {
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryRange range;
  range.block = new_block(rounded(size), usage, size);
  range.offset = *range.block->ranges->allocate(size);
  range.size = size;
  staging_ += range.block->size;
  return range;
}

std::optional<MemoryRange> MemoryPool::take_from_blocks(std::uint64_t size, Usage usage) {
  // Blocks in use first; of the empty ones the smallest that holds it, so that a large one stays whole.
  MemoryBlock* empty = nullptr;
  for (auto& block : blocks_) {
    if (block->usage != usage) continue;
    if (block->ranges->used() == 0) {
      const bool fits = block->size >= size && (block->size <= largest_block || size > block->size / 4);
      if (fits && (empty == nullptr || block->size < empty->size)) empty = block.get();
    } else if (const auto offset = block->ranges->allocate(size)) {
      return MemoryRange{block.get(), *offset, size};
    }
  }
  if (empty == nullptr) return std::nullopt;
  return MemoryRange{empty, *empty->ranges->allocate(size), size};
}

MemoryRange MemoryPool::take(std::uint64_t size, Usage usage) {
  const bool is_alone = usage == Usage::exported;
  if (!is_alone) {
    if (const auto range = take_from_blocks(size, usage)) return *range;
  }
  // Blocks double from 16 to 256 MiB; what is larger than half of the next one gets its own.
  std::uint64_t block_size = smallest_block;
  for (auto& block : blocks_) {
    if (block->usage == usage) block_size = std::min(largest_block, std::max(block_size, 2 * block->size));
  }
  const bool own = is_alone || rounded(size) > block_size / 2;
  MemoryBlock* home = own ? new_block(rounded(size), usage, size) : new_shared_block(block_size, usage, size);
  const auto offset = home->ranges->allocate(size);
  if (!offset) throw DeviceError("A fresh memory block does not hold the buffer it was made for.");
  return {home, *offset, size};
}

// A block that others will share; of half the size, and so on, where the device has little left.
MemoryBlock* MemoryPool::new_shared_block(std::uint64_t block_size, Usage usage, std::uint64_t asked) {
  while (block_size > rounded(asked)) {
    try {
      return new_block(block_size, usage, asked);
    } catch (const DeviceMemoryError&) {
      block_size /= 2;
    }
  }
  return new_block(rounded(asked), usage, asked);
}

void MemoryPool::release(MemoryBlock* block, std::uint64_t offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t before = block->ranges->used();
  block->ranges->free(offset);
  used_ -= before - block->ranges->used();
  --allocations_;
  if (block->ranges->used() == 0) drop_empty(block->usage, kept_bytes(*block));
}

std::uint64_t MemoryPool::kept_bytes(const MemoryBlock& like) const {
  if (like.usage == Usage::exported || like.usage == Usage::imported) return 0;
  const std::uint64_t most =
      like.usage == Usage::device || like.usage == Usage::shared ? most_kept_on_device : most_kept_on_host;
  return std::min(most, device_.physical().heaps.at(like.heap).size / 8);
}

// Destroy empty blocks of a usage, the largest first, until those that are left fit into `keep` bytes.
void MemoryPool::drop_empty(Usage usage, std::uint64_t keep) {
  std::vector<MemoryBlock*> empty;
  std::uint64_t held = 0;
  for (auto& block : blocks_) {
    if (block->usage != usage || block->ranges->used() != 0) continue;
    empty.push_back(block.get());
    held += block->size;
  }
  std::sort(empty.begin(), empty.end(), [](auto* a, auto* b) { return a->size > b->size; });
  for (MemoryBlock* block : empty) {
    if (held <= keep) return;
    held -= block->size;
    destroy(*block);
    blocks_.erase(
        std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.get() == block; }));
  }
}

void MemoryPool::trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  trim_locked();
}

void MemoryPool::trim_locked() {
  for (Usage usage : every_usage) drop_empty(usage, 0);
}

std::uint32_t MemoryPool::memory_type(Usage usage, std::uint32_t allowed) const {
  const VkPhysicalDeviceMemoryProperties& memory = device_.physical().memory;
  for (VkMemoryPropertyFlags wanted : preferences(usage)) {
    for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const bool fits = (memory.memoryTypes[i].propertyFlags & wanted) == wanted;
      if (fits && (allowed & (1u << i)) != 0) return i;
    }
  }
  throw DeviceError(std::string("The device has no memory type for '") + usage_name(usage) + "' buffers.");
}

MemoryBlock* MemoryPool::new_block(std::uint64_t size, Usage usage, std::uint64_t asked, void* host) {
  auto block = std::make_unique<MemoryBlock>();
  block->host = host;
  block->usage = usage;
  block->size = size;
  try {
    allocate_memory(*block, asked);
    map(*block);
    block->ranges = std::make_unique<Tlsf>(size);
    blocks_.push_back(std::move(block));
  } catch (...) {
    if (block) destroy(*block);
    throw;
  }
  return blocks_.back().get();
}

void MemoryPool::allocate_memory(MemoryBlock& block, std::uint64_t asked) {
  const DeviceApi& api = device_.api();
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = block.size;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (device_.physical().conditional) info.usage |= VK_BUFFER_USAGE_CONDITIONAL_RENDERING_BIT_EXT;
  const bool is_exported = block.usage == Usage::exported, is_imported = block.host != nullptr;
  const bool addresses = device_.physical().buffer_address && !is_imported;
  if (addresses) info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  const auto is_full = [](VkResult r) {
    return r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY;
  };
  VkExternalMemoryBufferCreateInfo external{};
  external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
  external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  if (is_imported) external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  if (is_exported && !device_.physical().exports_memory) {
    throw DeviceError("The driver of " + device_.physical().name +
                      " does not export memory (VK_KHR_external_memory_fd) to other libraries.");
  }
  if (is_exported || is_imported) info.pNext = &external;
  VkResult result = api.vkCreateBuffer(device_.handle(), &info, nullptr, &block.buffer);
  if (is_full(result)) {
    const std::uint32_t type = memory_type(block.usage, ~std::uint32_t{0});
    out_of_memory(asked, block.size, device_.physical().memory.memoryTypes[type].heapIndex, true, result);
  }
  check(result, "creating a buffer");
  VkMemoryRequirements needs{};
  api.vkGetBufferMemoryRequirements(device_.handle(), block.buffer, &needs);
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = addresses ? VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT : 0;
  VkMemoryDedicatedAllocateInfo dedicated{};
  dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
  dedicated.buffer = block.buffer;
  VkExportMemoryAllocateInfo exported{};
  exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
  exported.pNext = &dedicated;
  exported.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  if (is_exported) flags.pNext = &exported;
  VkImportMemoryHostPointerInfoEXT imported{};
  imported.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
  imported.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  imported.pHostPointer = block.host;
  if (is_imported) {
    VkMemoryHostPointerPropertiesEXT suited{};
    suited.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
    check(api.vkGetMemoryHostPointerPropertiesEXT(device_.handle(), imported.handleType, block.host, &suited),
          "asking for memory of the host");
    needs.memoryTypeBits &= suited.memoryTypeBits;
    needs.size = block.size;  // all that there is
    flags.pNext = &imported;
  }
  VkMemoryAllocateInfo allocate{};
  allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  allocate.pNext = &flags;
  allocate.allocationSize = block.allocated = needs.size;
  allocate.memoryTypeIndex = memory_type(block.usage, needs.memoryTypeBits);
  block.heap = device_.physical().memory.memoryTypes[allocate.memoryTypeIndex].heapIndex;
  result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  bool was_refused = false;  // by the driver, not by its figures
  for (bool again : {false, true}) {
    if (again) trim_locked();  // what is kept for later makes room
    if (needs.size <= free_locked(block.heap) - empty_bytes(block.heap)) {
      result = api.vkAllocateMemory(device_.handle(), &allocate, nullptr, &block.memory);
      was_refused = is_full(result);
    }
    if (!is_full(result)) break;
  }
  if (is_full(result)) out_of_memory(asked, needs.size, block.heap, was_refused, result);
  check(result, "allocating memory");
  check(api.vkBindBufferMemory(device_.handle(), block.buffer, block.memory, 0), "binding memory");
  if (!addresses) return;
  VkBufferDeviceAddressInfo address{};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = block.buffer;
  block.address = api.vkGetBufferDeviceAddress(device_.handle(), &address);
}

void MemoryPool::map(MemoryBlock& block) {
  if (block.usage == Usage::device || block.usage == Usage::exported || block.usage == Usage::imported)
    return;
  VkMemoryRequirements needs{};
  device_.api().vkGetBufferMemoryRequirements(device_.handle(), block.buffer, &needs);
  const auto& type = device_.physical().memory.memoryTypes[memory_type(block.usage, needs.memoryTypeBits)];
  if ((type.propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) == 0) return;
  void* mapped = nullptr;
  check(device_.api().vkMapMemory(device_.handle(), block.memory, 0, VK_WHOLE_SIZE, 0, &mapped),
        "mapping memory");
  block.mapped = static_cast<char*>(mapped);
  block.cached = (type.propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
}

void MemoryPool::destroy(MemoryBlock& block) {
  const DeviceApi& api = device_.api();
  if (block.buffer != VK_NULL_HANDLE) api.vkDestroyBuffer(device_.handle(), block.buffer, nullptr);
  if (block.memory != VK_NULL_HANDLE) api.vkFreeMemory(device_.handle(), block.memory, nullptr);
  block.buffer = VK_NULL_HANDLE;
  block.memory = VK_NULL_HANDLE;
}

std::uint64_t MemoryPool::free_bytes(std::uint32_t heap) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return free_locked(heap);
}

std::uint64_t MemoryPool::free_locked(std::uint32_t heap) const {
  const PhysicalDevice& physical = device_.physical();
  std::uint64_t ours = 0;
  for (const auto& block : blocks_) {
    if (block->heap == heap) ours += block->size;
  }
  std::uint64_t limit = physical.heaps.at(heap).size;
  std::uint64_t in_use = ours;
  if (physical.memory_budget) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    memory.pNext = &budget;
    device_.instance().api().vkGetPhysicalDeviceMemoryProperties2(physical.handle, &memory);
    limit = std::min<std::uint64_t>(limit, budget.heapBudget[heap]);
    in_use = std::max<std::uint64_t>(in_use, budget.heapUsage[heap]);
  }
  const std::uint64_t empty = empty_bytes(heap);
  return (limit > in_use ? limit - in_use : 0) + empty;
}

// Of blocks that nobody uses: theirs for the asking.
std::uint64_t MemoryPool::empty_bytes(std::uint32_t heap) const {
  std::uint64_t bytes = 0;
  for (const auto& block : blocks_) {
    if (block->heap == heap && block->ranges->used() == 0) bytes += block->size;
  }
  return bytes;
}

void MemoryPool::out_of_memory(std::uint64_t asked, std::uint64_t needed, std::uint32_t heap,
                               bool was_refused, VkResult result) const {
  const PhysicalDevice& physical = device_.physical();
  std::uint64_t ours = 0;
  for (const auto& block : blocks_) ours += block->size;
  const std::uint64_t available = free_locked(heap);
  // Some drivers allow more than they promise, so limits are named only after a refusal.
  std::string why = "a block of " + human(needed) + " does not fit";
  if (needed > physical.max_allocation) {
    why = "the driver promises at most " + human(physical.max_allocation) + " in one allocation";
  } else if (was_refused && blocks_.size() >= physical.max_allocations) {
    why = "the driver allows " + std::to_string(physical.max_allocations) + " allocations, all in use";
  } else if (was_refused && needed <= available) {
    why =
        "the driver refused a block of " + human(needed) + " (" + result_name(result) +
        "), which its own figures leave room for: the host's memory, or another program's use, may limit it";
  }
  throw DeviceMemoryError(
      "Out of memory on " + physical.name + ": " + human(asked) + " were asked for, " + human(available) +
      " of " + human(physical.heaps.at(heap).size) + " are free, " + human(ours) +
      " are held by this process already; " + why +
      ". An implicit Schur complement (schur='implicit') and precision='mixed' need less.");
}

MemoryStatistics MemoryPool::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryStatistics out;
  for (const auto& block : blocks_) {
    out.reserved += block->size;
    if (block->ranges->used() == 0) out.cached += block->size;
  }
  out.staging = staging_;
  out.used = used_;
  out.peak_used = peak_used_;
  out.blocks = blocks_.size();
  out.allocations = allocations_;
  return out;
}

}  // namespace graphopt::vulkan
