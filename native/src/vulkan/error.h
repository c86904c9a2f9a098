// What goes wrong on a device, as typed exceptions. The bindings turn them into graphopt.device errors.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

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
  explicit DeviceLostError(const std::string& text, std::string device = "", std::string running = "")
      : DeviceError(text), device_(std::move(device)), running_(std::move(running)) {}

  const std::string& device() const { return device_; }    // its name
  const std::string& running() const { return running_; }  // what it was doing; empty where nobody knows

 private:
  std::string device_, running_;
};

}  // namespace graphopt::vulkan
