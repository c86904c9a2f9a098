// A logical device: one compute queue, one timeline semaphore, a memory pool, a pipeline cache kept on disk.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "vulkan/error.h"
#include "vulkan/instance.h"
#include "vulkan/memory.h"

namespace graphopt::vulkan {

struct DeviceOptions {
  bool validation = false;
  std::set<std::string>
      masked;                   // features treated as missing: float64, buffer_address, subgroup_size_control
  std::string memory_scheme;    // "single", "staged", "rebar"; empty: chosen by the kind of device
  std::string cache_directory;  // of the pipeline cache; empty: not kept
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  Device(std::size_t index, const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const PhysicalDevice& physical() const { return physical_; }  // features after masking
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return device_; }
  Instance& instance() { return *instance_; }
  MemoryPool& memory() { return *memory_; }
  const std::string& memory_scheme() const { return scheme_; }
  VkPipelineCache pipeline_cache() const { return pipeline_cache_; }

  // Submit after everything submitted before; returns the timeline value that is reached when it is done.
  std::uint64_t submit(VkCommandBuffer commands);
  // False after timeout_s seconds without completion. Throws DeviceLostError.
  bool wait(std::uint64_t value, double timeout_s);
  bool done(std::uint64_t value);
  void wait_idle();

  void save_pipeline_cache();
  std::string pipeline_cache_path() const;

 private:
  void create_device();
  void create_pipeline_cache();

  std::shared_ptr<Instance> instance_;
  PhysicalDevice physical_;
  DeviceOptions options_;
  std::string scheme_;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceApi api_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkPipelineCache pipeline_cache_ = VK_NULL_HANDLE;
  std::size_t saved_cache_size_ = 0;
  std::unique_ptr<MemoryPool> memory_;
  std::mutex queue_mutex_;
  std::uint64_t submitted_ = 0;
};

}  // namespace graphopt::vulkan
