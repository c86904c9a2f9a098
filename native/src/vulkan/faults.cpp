#include "vulkan/faults.h"

#include "vulkan/error.h"

namespace graphopt::vulkan {
namespace {

template <class Function>
struct Failing;

template <class... Arguments>
struct Failing<VkResult(VKAPI_PTR*)(Arguments...)> {
  template <VkResult result>
  static VKAPI_ATTR VkResult VKAPI_CALL call(Arguments...) {
    return result;
  }
};

template <class Function>
Function failing(const std::string& result) {
  if (result == "VK_ERROR_DEVICE_LOST") return Failing<Function>::template call<VK_ERROR_DEVICE_LOST>;
  if (result == "VK_ERROR_MEMORY_MAP_FAILED") {
    return Failing<Function>::template call<VK_ERROR_MEMORY_MAP_FAILED>;
  }
  if (result == "VK_ERROR_OUT_OF_DEVICE_MEMORY") {
    return Failing<Function>::template call<VK_ERROR_OUT_OF_DEVICE_MEMORY>;
  }
  if (result == "VK_TIMEOUT") return Failing<Function>::template call<VK_TIMEOUT>;
  throw DeviceError("'" + result + "' is no result that a call can be made to return.");
}

}  // namespace

void break_call(DeviceApi& api, const std::string& call, const std::string& result) {
#define GRAPHOPT_BREAK(name)                        \
  if (call == #name) {                              \
    api.name = failing<decltype(api.name)>(result); \
    return;                                         \
  }
  GRAPHOPT_BREAK(vkAllocateMemory)
  GRAPHOPT_BREAK(vkBindBufferMemory)
  GRAPHOPT_BREAK(vkMapMemory)
  GRAPHOPT_BREAK(vkCreateCommandPool)
  GRAPHOPT_BREAK(vkQueueSubmit)
  GRAPHOPT_BREAK(vkWaitSemaphores)
  GRAPHOPT_BREAK(vkGetSemaphoreCounterValue)
  GRAPHOPT_BREAK(vkDeviceWaitIdle)
#undef GRAPHOPT_BREAK
  throw DeviceError("'" + call + "' is no call that can be made to fail.");
}

}  // namespace graphopt::vulkan
