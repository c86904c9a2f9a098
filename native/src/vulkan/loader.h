// libvulkan, opened at run time: a machine without it still imports the package.
//
// Three tables of function pointers: what the library exports, what an instance has, what a device has.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <string>

namespace graphopt::vulkan {

// clang-format 14 gives these lists another shape every time it runs.
// clang-format off
#define GRAPHOPT_VK_GLOBAL(X) \
  X(vkEnumerateInstanceVersion) X(vkEnumerateInstanceLayerProperties) \
  X(vkEnumerateInstanceExtensionProperties) X(vkCreateInstance)

#define GRAPHOPT_VK_INSTANCE(X) \
  X(vkDestroyInstance) X(vkEnumeratePhysicalDevices) X(vkGetPhysicalDeviceProperties2) \
  X(vkGetPhysicalDeviceFeatures2) X(vkGetPhysicalDeviceMemoryProperties2) \
  X(vkGetPhysicalDeviceQueueFamilyProperties) X(vkGetPhysicalDeviceExternalBufferProperties) \
  X(vkGetPhysicalDeviceExternalSemaphoreProperties) X(vkEnumerateDeviceExtensionProperties) X(vkCreateDevice) \
  X(vkGetDeviceProcAddr)

#define GRAPHOPT_VK_DEVICE(X) \
  X(vkDestroyDevice) X(vkGetDeviceQueue) X(vkDeviceWaitIdle) X(vkAllocateMemory) X(vkFreeMemory) \
  X(vkMapMemory) X(vkCreateBuffer) X(vkDestroyBuffer) X(vkGetBufferMemoryRequirements) \
  X(vkBindBufferMemory) X(vkGetBufferDeviceAddress) X(vkCreateShaderModule) X(vkDestroyShaderModule) \
  X(vkCreatePipelineCache) X(vkDestroyPipelineCache) X(vkGetPipelineCacheData) X(vkCreatePipelineLayout) \
  X(vkDestroyPipelineLayout) X(vkCreateComputePipelines) X(vkDestroyPipeline) \
  X(vkCreateDescriptorSetLayout) X(vkDestroyDescriptorSetLayout) X(vkCreateDescriptorPool) \
  X(vkDestroyDescriptorPool) X(vkAllocateDescriptorSets) X(vkUpdateDescriptorSets) X(vkCreateCommandPool) \
  X(vkDestroyCommandPool) X(vkResetCommandPool) X(vkAllocateCommandBuffers) X(vkBeginCommandBuffer) \
  X(vkEndCommandBuffer) X(vkQueueSubmit) X(vkCmdBindPipeline) X(vkCmdPushConstants) X(vkCmdDispatch) \
  X(vkCmdPipelineBarrier) \
  X(vkCmdCopyBuffer) X(vkCmdFillBuffer) X(vkCmdBindDescriptorSets) X(vkCmdWriteTimestamp) \
  X(vkCmdResetQueryPool) X(vkCreateQueryPool) X(vkDestroyQueryPool) X(vkGetQueryPoolResults) \
  X(vkCreateSemaphore) X(vkDestroySemaphore) X(vkWaitSemaphores) X(vkGetSemaphoreCounterValue)
// clang-format on

#define GRAPHOPT_VK_MEMBER(name) PFN_##name name = nullptr;

struct GlobalApi {
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  GRAPHOPT_VK_GLOBAL(GRAPHOPT_VK_MEMBER)
};

struct InstanceApi {
  GRAPHOPT_VK_INSTANCE(GRAPHOPT_VK_MEMBER)
  PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT = nullptr;    // may stay null
  PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT = nullptr;  // may stay null
};

struct DeviceApi {
  GRAPHOPT_VK_DEVICE(GRAPHOPT_VK_MEMBER)
  PFN_vkCmdBeginConditionalRenderingEXT vkCmdBeginConditionalRenderingEXT = nullptr;      // may stay null
  PFN_vkCmdEndConditionalRenderingEXT vkCmdEndConditionalRenderingEXT = nullptr;          // may stay null
  PFN_vkGetMemoryFdKHR vkGetMemoryFdKHR = nullptr;                                        // may stay null
  PFN_vkGetSemaphoreFdKHR vkGetSemaphoreFdKHR = nullptr;                                  // may stay null
  PFN_vkGetMemoryHostPointerPropertiesEXT vkGetMemoryHostPointerPropertiesEXT = nullptr;  // may stay null
};

// Open libvulkan once per process. Throws DeviceError with the way out where there is none.
const GlobalApi& global_api();

InstanceApi load_instance_api(VkInstance instance);
DeviceApi load_device_api(const InstanceApi& api, VkDevice device);

// "VK_ERROR_OUT_OF_DEVICE_MEMORY" and so on.
std::string result_name(VkResult result);

// Throw DeviceError (DeviceLostError for a lost device) unless result is VK_SUCCESS.
void check(VkResult result, const char* what);

}  // namespace graphopt::vulkan
