// Calls of a driver that fail on purpose: tests of what happens when memory cannot be mapped or a device is
// lost.
#pragma once

#include <string>

#include "vulkan/loader.h"

namespace graphopt::vulkan {

// `call`, e.g. "vkMapMemory", does nothing and returns `result` ("VK_ERROR_DEVICE_LOST",
// "VK_ERROR_MEMORY_MAP_FAILED", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY" or
// "VK_TIMEOUT"): from now on, or where `at` is not negative the call with this number (from 0) alone. Throws
// DeviceError for others. One device at a time.
void break_call(DeviceApi& api, const std::string& call, const std::string& result, long at);

// Calls that failed by that.
long faults_since_last_asked();

}  // namespace graphopt::vulkan
