#include "vulkan/loader.h"

#include <dlfcn.h>

#include "vulkan/error.h"

namespace graphopt::vulkan {
namespace {

GlobalApi open_library() {
  void* library = nullptr;
  for (const char* name : {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib", "libMoltenVK.dylib"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    throw DeviceError(
        "No Vulkan loader (libvulkan.so.1) was found on this machine. Install it together with a driver "
        "(Debian and Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers, or the vendor's driver), or use "
        "device='cpu'.");
  }
  GlobalApi api;
  api.vkGetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (api.vkGetInstanceProcAddr == nullptr) throw DeviceError("libvulkan lacks vkGetInstanceProcAddr.");
#define GRAPHOPT_LOAD(name)                                                           \
  api.name = reinterpret_cast<PFN_##name>(api.vkGetInstanceProcAddr(nullptr, #name)); \
  if (api.name == nullptr) throw DeviceError("libvulkan lacks " #name "; Vulkan 1.2 is needed.");
  GRAPHOPT_VK_GLOBAL(GRAPHOPT_LOAD)
#undef GRAPHOPT_LOAD
  return api;
}

}  // namespace

const GlobalApi& global_api() {
  static const GlobalApi api = open_library();
  return api;
}

InstanceApi load_instance_api(VkInstance instance) {
  const GlobalApi& global = global_api();
  InstanceApi api;
#define GRAPHOPT_LOAD(name)                                                               \
  api.name = reinterpret_cast<PFN_##name>(global.vkGetInstanceProcAddr(instance, #name)); \
  if (api.name == nullptr) throw DeviceError("The Vulkan instance lacks " #name ".");
  GRAPHOPT_VK_INSTANCE(GRAPHOPT_LOAD)
#undef GRAPHOPT_LOAD
  api.vkCreateDebugUtilsMessengerEXT = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
      global.vkGetInstanceProcAddr(instance, "vkCreateDebugUtilsMessengerEXT"));
  api.vkDestroyDebugUtilsMessengerEXT = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
      global.vkGetInstanceProcAddr(instance, "vkDestroyDebugUtilsMessengerEXT"));
  return api;
}

DeviceApi load_device_api(const InstanceApi& instance, VkDevice device) {
  DeviceApi api;
#define GRAPHOPT_LOAD(name)                                                             \
  api.name = reinterpret_cast<PFN_##name>(instance.vkGetDeviceProcAddr(device, #name)); \
  if (api.name == nullptr) throw DeviceError("The Vulkan device lacks " #name ".");
  GRAPHOPT_VK_DEVICE(GRAPHOPT_LOAD)
#undef GRAPHOPT_LOAD
#define GRAPHOPT_LOAD_IF_THERE(name) \
  api.name = reinterpret_cast<PFN_##name>(instance.vkGetDeviceProcAddr(device, #name));
  GRAPHOPT_LOAD_IF_THERE(vkCmdBeginConditionalRenderingEXT)
  GRAPHOPT_LOAD_IF_THERE(vkCmdEndConditionalRenderingEXT)
  GRAPHOPT_LOAD_IF_THERE(vkGetMemoryFdKHR)
  GRAPHOPT_LOAD_IF_THERE(vkGetSemaphoreFdKHR)
  GRAPHOPT_LOAD_IF_THERE(vkGetMemoryHostPointerPropertiesEXT)
#undef GRAPHOPT_LOAD_IF_THERE
  return api;
}

std::string result_name(VkResult result) {
  switch (result) {
#define GRAPHOPT_NAME(name) \
  case name:                \
    return #name;
    GRAPHOPT_NAME(VK_SUCCESS)
    GRAPHOPT_NAME(VK_NOT_READY)
    GRAPHOPT_NAME(VK_TIMEOUT)
    GRAPHOPT_NAME(VK_INCOMPLETE)
    GRAPHOPT_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    GRAPHOPT_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    GRAPHOPT_NAME(VK_ERROR_INITIALIZATION_FAILED)
    GRAPHOPT_NAME(VK_ERROR_DEVICE_LOST)
    GRAPHOPT_NAME(VK_ERROR_MEMORY_MAP_FAILED)
    GRAPHOPT_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    GRAPHOPT_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    GRAPHOPT_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    GRAPHOPT_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    GRAPHOPT_NAME(VK_ERROR_OUT_OF_POOL_MEMORY)
#undef GRAPHOPT_NAME
    default:
      return "VkResult " + std::to_string(static_cast<int>(result));
  }
}

void check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return;
  const std::string text = std::string(what) + " failed with " + result_name(result) + ".";
  if (result == VK_ERROR_DEVICE_LOST) {
    throw DeviceLostError(text + " The driver reset or removed the device; open it again.");
  }
  throw DeviceError(text);
}

}  // namespace graphopt::vulkan
