// Calls of a driver that fail on purpose: tests of what happens when memory cannot be mapped or a device is
// lost.
#pragma once

#include <string>

#include "vulkan/loader.h"

namespace graphopt::vulkan {

// From now on `call`, e.g. "vkMapMemory", does nothing and returns `result` ("VK_ERROR_DEVICE_LOST",
// "VK_ERROR_MEMORY_MAP_FAILED", "VK_ERROR_OUT_OF_DEVICE_MEMORY" or "VK_TIMEOUT"). Throws DeviceError for
// others.
void break_call(DeviceApi& api, const std::string& call, const std::string& result);

}  // namespace graphopt::vulkan
