// A Vulkan instance, optionally under the validation layer, and the physical devices it sees.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vulkan/loader.h"

namespace graphopt::vulkan {

struct MemoryHeap {
  std::uint64_t size = 0;  // [bytes]
  bool device_local = false;
};

// What a physical device is and can do.
struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name, driver, driver_info, kind;  // kind: discrete, integrated, virtual, cpu, other
  std::uint32_t api_version = 0, vendor_id = 0, device_id = 0, driver_version = 0;
  std::string cache_uuid;   // hexadecimal pipelineCacheUUID
  std::string device_uuid;  // hexadecimal: the same in every API of the vendor

  bool float64 = false, int64 = false, buffer_address = false, scalar_layout = false;
  bool timeline_semaphore = false, subgroup_size_control = false, subgroup_arithmetic = false;
  bool memory_budget = false, conditional = false;  // conditional: commands that run where a word says so
  bool exports_memory = false;                      // as a file descriptor, to another API
  bool exports_semaphore = false;                   // a timeline semaphore, likewise
  std::uint64_t host_alignment = 0;  // [bytes] of memory of the host that it works on; 0: it cannot
  std::uint32_t subgroup_size = 1, min_subgroup_size = 1, max_subgroup_size = 1;

  std::uint64_t max_storage_range = 0, max_allocation = 0;  // [bytes]
  std::uint32_t max_allocations = 0;
  std::uint32_t max_push_constants = 0, max_shared_memory = 0, max_workgroup_invocations = 0;
  std::uint32_t max_groups_x = 0;
  std::uint32_t max_storage_buffers = 0;  // of one kernel, where buffers are not reached by address
  std::uint64_t storage_offset_alignment = 0;
  float timestamp_period = 0.0f;  // [ns per tick]
  std::uint32_t queue_family = 0;
  std::uint32_t timestamp_bits = 0;
  bool has_compute_queue = false;

  std::vector<MemoryHeap> heaps;
  VkPhysicalDeviceMemoryProperties memory{};
};

// The process that made something of a driver's. A child of fork() has its memory, but neither the driver's
// threads nor its connection to the device: whoever used it there would wait for ever.
class Owner {
 public:
  bool is_another() const { return process_ != getpid(); }
  // DeviceError with the way out in a child of that process.
  void require_this() const;

 private:
  const pid_t process_ = getpid();
};

class Instance {
 public:
  // Shared by all devices opened with the same choice of validation. Throws DeviceError, also in a child of
  // fork() where the parent had one.
  static std::shared_ptr<Instance> get(bool validation);

  explicit Instance(bool validation);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const InstanceApi& api() const { return api_; }
  const std::vector<PhysicalDevice>& devices() const { return devices_; }
  bool validation() const { return validation_; }
  const Owner& owner() const { return owner_; }

  // Warnings and errors of the validation layer since the last clear.
  std::vector<std::string> messages() const;
  void clear_messages();
  void add_message(const std::string& text);

 private:
  void enumerate();

  Owner owner_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  InstanceApi api_;
  bool validation_ = false;
  std::vector<PhysicalDevice> devices_;
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace graphopt::vulkan
