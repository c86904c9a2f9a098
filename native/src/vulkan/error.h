// What goes wrong on a device, as typed exceptions. The bindings turn them into graphopt.device errors.
#pragma once

#include <stdexcept>
#include <string>

namespace graphopt::vulkan {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The device has not enough memory; the text says how much was asked, how much is free and what helps.
class DeviceMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// The device was lost or did not answer in time. Nothing on it can be trusted any more.
class DeviceLostError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

}  // namespace graphopt::vulkan
