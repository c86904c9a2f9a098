#include "vulkan/device.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace graphopt::vulkan {
namespace {

void mask_features(PhysicalDevice& device, const std::set<std::string>& masked) {
  for (const std::string& name : masked) {
    if (name == "float64") {
      device.float64 = false;
    } else if (name == "buffer_address") {
      device.buffer_address = false;
    } else if (name == "subgroup_size_control") {
      device.subgroup_size_control = false;
    } else {
      throw DeviceError("Feature '" + name +
                        "' cannot be masked; expected float64, buffer_address or subgroup_size_control.");
    }
  }
}

std::string choose_scheme(const PhysicalDevice& device, const std::string& asked) {
  if (asked.empty()) return device.kind == "discrete" || device.kind == "virtual" ? "staged" : "single";
  if (asked != "single" && asked != "staged" && asked != "rebar") {
    throw DeviceError("memory_scheme is '" + asked + "', expected single, staged or rebar.");
  }
  return asked;
}

}  // namespace

Device::Device(std::size_t index, const DeviceOptions& options)
    : instance_(Instance::get(options.validation)), options_(options) {
  if (index >= instance_->devices().size()) {
    throw DeviceError("Vulkan device " + std::to_string(index) + " does not exist: there are " +
                      std::to_string(instance_->devices().size()) +
                      " with Vulkan 1.2. `graphopt devices` lists them.");
  }
  physical_ = instance_->devices()[index];
  mask_features(physical_, options.masked);
  scheme_ = choose_scheme(physical_, options.memory_scheme);
  create_device();
  create_pipeline_cache();
  memory_ = std::make_unique<MemoryPool>(*this);
}

void Device::create_device() {
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = physical_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;

  VkPhysicalDeviceSubgroupSizeControlFeatures size_control{};
  size_control.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  size_control.subgroupSizeControl = VK_TRUE;
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features12.timelineSemaphore = VK_TRUE;
  features12.scalarBlockLayout = physical_.scalar_layout ? VK_TRUE : VK_FALSE;
  features12.bufferDeviceAddress = physical_.buffer_address ? VK_TRUE : VK_FALSE;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features12;
  features.features.shaderFloat64 = physical_.float64 ? VK_TRUE : VK_FALSE;
  features.features.shaderInt64 = physical_.int64 ? VK_TRUE : VK_FALSE;

  std::vector<const char*> extensions;
  if (physical_.subgroup_size_control) {
    extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    features12.pNext = &size_control;
  }
  if (physical_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);

  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  check(instance_->api().vkCreateDevice(physical_.handle, &info, nullptr, &device_), "opening the device");
  api_ = load_device_api(instance_->api(), device_);
  api_.vkGetDeviceQueue(device_, physical_.queue_family, 0, &queue_);

  VkSemaphoreTypeCreateInfo type{};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo semaphore{};
  semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  semaphore.pNext = &type;
  check(api_.vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_), "creating the timeline semaphore");
}

Device::~Device() {
  if (device_ == VK_NULL_HANDLE) return;
  api_.vkDeviceWaitIdle(device_);
  try {
    save_pipeline_cache();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "graphopt: the pipeline cache was not saved: %s\n", error.what());
  }
  memory_.reset();
  api_.vkDestroyPipelineCache(device_, pipeline_cache_, nullptr);
  api_.vkDestroySemaphore(device_, timeline_, nullptr);
  api_.vkDestroyDevice(device_, nullptr);
}

std::uint64_t Device::submit(VkCommandBuffer commands) {
  std::lock_guard<std::mutex> lock(queue_mutex_);
  const std::uint64_t value = submitted_ + 1;
  VkTimelineSemaphoreSubmitInfo timeline{};
  timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value;
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &timeline;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  check(api_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), "submitting to the device");
  submitted_ = value;
  return value;
}

bool Device::wait(std::uint64_t value, double timeout_s) {
  VkSemaphoreWaitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  const double ns = std::min(std::max(timeout_s, 0.0) * 1e9, 9e18);
  const VkResult result = api_.vkWaitSemaphores(device_, &info, static_cast<std::uint64_t>(ns));
  if (result == VK_TIMEOUT) return false;
  check(result, "waiting for the device");
  return true;
}

bool Device::done(std::uint64_t value) {
  std::uint64_t reached = 0;
  check(api_.vkGetSemaphoreCounterValue(device_, timeline_, &reached), "asking the device for progress");
  return reached >= value;
}

void Device::wait_idle() {
  std::lock_guard<std::mutex> lock(queue_mutex_);
  check(api_.vkDeviceWaitIdle(device_), "waiting for the device");
}

std::string Device::pipeline_cache_path() const {
  if (options_.cache_directory.empty()) return "";
  char name[128];
  std::snprintf(name, sizeof name, "pipelines-%08x-%08x-%08x-%s.bin", physical_.vendor_id,
                physical_.device_id, physical_.driver_version, physical_.cache_uuid.c_str());
  return (std::filesystem::path(options_.cache_directory) / name).string();
}

void Device::create_pipeline_cache() {
  std::string data;
  const std::string path = pipeline_cache_path();
  if (!path.empty()) {
    std::ifstream file(path, std::ios::binary);
    data.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  check(api_.vkCreatePipelineCache(device_, &info, nullptr, &pipeline_cache_), "creating the pipeline cache");
  saved_cache_size_ = data.size();
}

void Device::save_pipeline_cache() {
  const std::string path = pipeline_cache_path();
  if (path.empty()) return;
  std::size_t size = 0;
  check(api_.vkGetPipelineCacheData(device_, pipeline_cache_, &size, nullptr), "reading the pipeline cache");
  if (size == saved_cache_size_) return;
  std::string data(size, '\0');
  check(api_.vkGetPipelineCacheData(device_, pipeline_cache_, &size, data.data()),
        "reading the pipeline cache");
  std::error_code error;
  std::filesystem::create_directories(options_.cache_directory, error);
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file.write(data.data(), static_cast<std::streamsize>(size));
  file.close();
  if (!file) throw DeviceError("cannot write " + temporary);
  std::filesystem::rename(temporary, path, error);
  if (error) throw DeviceError("cannot rename " + temporary + ": " + error.message());
  saved_cache_size_ = size;
}

}  // namespace graphopt::vulkan
