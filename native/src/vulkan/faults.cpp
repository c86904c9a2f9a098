#include "vulkan/faults.h"

#include <atomic>

#include "vulkan/error.h"

namespace graphopt::vulkan {
namespace {

std::atomic<long> fired{0};

// What stands in for a call of the driver; `Name` tells functions of one type apart.
template <class Function, class Name>
struct Failing;

template <class Name, class... Arguments>
struct Failing<VkResult(VKAPI_PTR*)(Arguments...), Name> {
  using Function = VkResult(VKAPI_PTR*)(Arguments...);
  static inline Function driver = nullptr;
  static inline std::atomic<long> seen{0};
  static inline long at = -1;
  static inline VkResult result = VK_SUCCESS;

  static VKAPI_ATTR VkResult VKAPI_CALL call(Arguments... arguments) {
    if (const long number = seen.fetch_add(1); at >= 0 && number != at) return driver(arguments...);
    ++fired;
    return result;
  }

  static void put(Function& function, VkResult returned, long number) {
    if (function != &call) driver = function;
    seen = 0;
    at = number;
    result = returned;
    function = &call;
  }
};

VkResult result_of(const std::string& name) {
  for (const VkResult result : {VK_ERROR_DEVICE_LOST, VK_ERROR_MEMORY_MAP_FAILED,
                                VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY, VK_TIMEOUT}) {
    if (name == result_name(result)) return result;
  }
  throw DeviceError("'" + name + "' is no result that a call can be made to return.");
}

}  // namespace

void break_call(DeviceApi& api, const std::string& call, const std::string& result, long at) {
  const VkResult returned = result_of(result);
#define GRAPHOPT_BREAK(name)                                        \
  if (call == #name) {                                              \
    struct Name {};                                                 \
    Failing<decltype(api.name), Name>::put(api.name, returned, at); \
    return;                                                         \
  }
  GRAPHOPT_BREAK(vkAllocateMemory)
  GRAPHOPT_BREAK(vkCreateBuffer)
  GRAPHOPT_BREAK(vkBindBufferMemory)
  GRAPHOPT_BREAK(vkMapMemory)
  GRAPHOPT_BREAK(vkCreateShaderModule)
  GRAPHOPT_BREAK(vkCreateComputePipelines)
  GRAPHOPT_BREAK(vkCreatePipelineLayout)
  GRAPHOPT_BREAK(vkCreateDescriptorPool)
  GRAPHOPT_BREAK(vkAllocateDescriptorSets)
  GRAPHOPT_BREAK(vkCreateQueryPool)
  GRAPHOPT_BREAK(vkGetQueryPoolResults)
  GRAPHOPT_BREAK(vkCreateCommandPool)
  GRAPHOPT_BREAK(vkAllocateCommandBuffers)
  GRAPHOPT_BREAK(vkBeginCommandBuffer)
  GRAPHOPT_BREAK(vkEndCommandBuffer)
  GRAPHOPT_BREAK(vkQueueSubmit)
  GRAPHOPT_BREAK(vkWaitSemaphores)
  GRAPHOPT_BREAK(vkGetSemaphoreCounterValue)
  GRAPHOPT_BREAK(vkDeviceWaitIdle)
#undef GRAPHOPT_BREAK
  throw DeviceError("'" + call + "' is no call that can be made to fail.");
}

long faults_since_last_asked() { return fired.exchange(0); }

}  // namespace graphopt::vulkan
