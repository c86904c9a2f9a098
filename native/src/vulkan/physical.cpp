// Reads properties, features, limits and heaps of the physical devices.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "vulkan/instance.h"

namespace graphopt::vulkan {
namespace {

const char* kind_name(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return "cpu";
    default:
      return "other";
  }
}

bool has_extension(const InstanceApi& api, VkPhysicalDevice device, const char* name) {
  std::uint32_t count = 0;
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr), "listing extensions");
  std::vector<VkExtensionProperties> extensions(count);
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data()),
        "listing extensions");
  for (const auto& extension : extensions) {
    if (std::strcmp(extension.extensionName, name) == 0) return true;
  }
  return false;
}

template <std::size_t size>
std::string hexadecimal(const unsigned char (&bytes)[size]) {
  std::string out;
  char byte[3];
  for (const unsigned char value : bytes) {
    std::snprintf(byte, sizeof byte, "%02x", value);
    out += byte;
  }
  return out;
}

void read_limits(const VkPhysicalDeviceProperties& properties, PhysicalDevice& out) {
  const VkPhysicalDeviceLimits& limits = properties.limits;
  out.name = properties.deviceName;
  out.kind = kind_name(properties.deviceType);
  out.api_version = properties.apiVersion;
  out.vendor_id = properties.vendorID;
  out.device_id = properties.deviceID;
  out.driver_version = properties.driverVersion;
  out.cache_uuid = hexadecimal(properties.pipelineCacheUUID);
  out.max_storage_range = limits.maxStorageBufferRange;
  out.max_allocations = limits.maxMemoryAllocationCount;
  out.max_push_constants = limits.maxPushConstantsSize;
  out.max_shared_memory = limits.maxComputeSharedMemorySize;
  out.max_workgroup_invocations = limits.maxComputeWorkGroupInvocations;
  out.max_storage_buffers =
      std::min(limits.maxPerStageDescriptorStorageBuffers, limits.maxDescriptorSetStorageBuffers);
  out.max_groups_x = limits.maxComputeWorkGroupCount[0];
  out.storage_offset_alignment = limits.minStorageBufferOffsetAlignment;
  out.timestamp_period = limits.timestampPeriod;
}

void read_properties(const InstanceApi& api, PhysicalDevice& out) {
  VkPhysicalDeviceSubgroupSizeControlProperties size_control{};
  size_control.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES;
  VkPhysicalDeviceMaintenance3Properties maintenance{};
  maintenance.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
  VkPhysicalDeviceSubgroupProperties subgroup{};
  subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  VkPhysicalDeviceDriverProperties driver{};
  driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &driver;
  driver.pNext = &subgroup;
  subgroup.pNext = &maintenance;
  VkPhysicalDeviceIDProperties identity{};
  identity.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{};
  host.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
  const bool imports = has_extension(api, out.handle, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  maintenance.pNext = &identity;
  if (out.subgroup_size_control) identity.pNext = &size_control;
  if (imports) {
    host.pNext = identity.pNext;
    identity.pNext = &host;
  }
  api.vkGetPhysicalDeviceProperties2(out.handle, &properties);
  read_limits(properties.properties, out);
  out.host_alignment = imports ? host.minImportedHostPointerAlignment : 0;
  out.device_uuid = hexadecimal(identity.deviceUUID);
  out.driver = driver.driverName;
  out.driver_info = driver.driverInfo;
  out.max_allocation = maintenance.maxMemoryAllocationSize;
  out.subgroup_size = out.min_subgroup_size = out.max_subgroup_size = subgroup.subgroupSize;
  out.subgroup_arithmetic = (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
                            (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
  if (out.subgroup_size_control) {
    out.min_subgroup_size = size_control.minSubgroupSize;
    out.max_subgroup_size = size_control.maxSubgroupSize;
  }
}

void read_features(const InstanceApi& api, PhysicalDevice& out) {
  VkPhysicalDeviceSubgroupSizeControlFeatures size_control{};
  size_control.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  VkPhysicalDeviceConditionalRenderingFeaturesEXT conditional{};
  conditional.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT;
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features12;
  const bool control = has_extension(api, out.handle, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  if (control) features12.pNext = &size_control;
  const bool conditions = has_extension(api, out.handle, VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME);
  conditional.pNext = features12.pNext;
  if (conditions) features12.pNext = &conditional;
  api.vkGetPhysicalDeviceFeatures2(out.handle, &features);
  out.float64 = features.features.shaderFloat64 == VK_TRUE;
  out.int64 = features.features.shaderInt64 == VK_TRUE;
  out.buffer_address = features12.bufferDeviceAddress == VK_TRUE;
  out.scalar_layout = features12.scalarBlockLayout == VK_TRUE;
  out.timeline_semaphore = features12.timelineSemaphore == VK_TRUE;
  out.conditional = conditions && conditional.conditionalRendering == VK_TRUE;
  out.subgroup_size_control = control && size_control.subgroupSizeControl == VK_TRUE;
}

void read_export(const InstanceApi& api, PhysicalDevice& out) {
  if (!has_extension(api, out.handle, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME)) return;
  VkPhysicalDeviceExternalBufferInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  VkExternalBufferProperties properties{};
  properties.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES;
  api.vkGetPhysicalDeviceExternalBufferProperties(out.handle, &info, &properties);
  out.exports_memory = (properties.externalMemoryProperties.externalMemoryFeatures &
                        VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT) != 0;
  if (!has_extension(api, out.handle, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME)) return;
  VkSemaphoreTypeCreateInfo type{};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkPhysicalDeviceExternalSemaphoreInfo asked{};
  asked.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO;
  asked.pNext = &type;
  asked.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  VkExternalSemaphoreProperties semaphore{};
  semaphore.sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES;
  api.vkGetPhysicalDeviceExternalSemaphoreProperties(out.handle, &asked, &semaphore);
  out.exports_semaphore =
      (semaphore.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT) != 0;
}

void read_queue(const InstanceApi& api, PhysicalDevice& out) {
  std::uint32_t count = 0;
  api.vkGetPhysicalDeviceQueueFamilyProperties(out.handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  api.vkGetPhysicalDeviceQueueFamilyProperties(out.handle, &count, families.data());
  for (std::uint32_t i = 0; i < count && !out.has_compute_queue; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    out.queue_family = i;
    out.timestamp_bits = families[i].timestampValidBits;
    out.has_compute_queue = true;
  }
}

}  // namespace

void Instance::enumerate() {
  std::uint32_t count = 0;
  VkResult result = api_.vkEnumeratePhysicalDevices(instance_, &count, nullptr);
  if (result == VK_ERROR_INITIALIZATION_FAILED) return;  // a loader without any usable driver
  check(result, "listing devices");
  std::vector<VkPhysicalDevice> handles(count);
  if (count > 0) check(api_.vkEnumeratePhysicalDevices(instance_, &count, handles.data()), "listing devices");
  for (VkPhysicalDevice handle : handles) {
    PhysicalDevice device;
    device.handle = handle;
    VkPhysicalDeviceProperties2 version{};
    version.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    api_.vkGetPhysicalDeviceProperties2(handle, &version);
    if (version.properties.apiVersion < VK_API_VERSION_1_2) continue;
    read_features(api_, device);
    read_properties(api_, device);
    read_queue(api_, device);
    if (!device.has_compute_queue || !device.timeline_semaphore) continue;
    device.memory_budget = has_extension(api_, handle, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    read_export(api_, device);
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    api_.vkGetPhysicalDeviceMemoryProperties2(handle, &memory);
    device.memory = memory.memoryProperties;
    for (std::uint32_t i = 0; i < device.memory.memoryHeapCount; ++i) {
      const VkMemoryHeap& heap = device.memory.memoryHeaps[i];
      device.heaps.push_back({heap.size, (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0});
    }
    devices_.push_back(device);
  }
}

}  // namespace graphopt::vulkan
