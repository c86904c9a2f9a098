#include "vulkan/gather.h"

#include <chrono>
#include <string>
#include <thread>

#include "vulkan/error.h"

namespace graphopt::vulkan {

namespace {

constexpr int bytes_type = 0;   // ncclInt8
constexpr int not_ready = 600;  // CUDA_ERROR_NOT_READY
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds longest_spin{2};

void require(int code, const std::string& what) {
  if (code == 0) return;
  throw DeviceError(what + " failed with error " + std::to_string(code) +
                    ". NCCL_DEBUG=WARN in the environment lets NCCL say why; transport='host' does without.");
}

}  // namespace

void Gather::begin() {
  if (place_.bytes == 0) return;
  require(calls_.push_context(place_.context), "Choosing CUDA's context");
  const int code = calls_.all_gather(place_.source, place_.target, place_.bytes, bytes_type,
                                     place_.communicator, place_.stream);
  void* before = nullptr;
  calls_.pop_context(&before);
  require(code, "NCCL's all-gather");
  is_pending_ = true;
}

void Gather::wait(double timeout_s) {
  if (!is_pending_) return;
  const Clock::time_point start = Clock::now();
  for (int code = calls_.query(place_.stream); code != 0; code = calls_.query(place_.stream)) {
    if (code != not_ready) require(code, "Waiting for NCCL's all-gather");
    const Clock::duration passed = Clock::now() - start;
    if (std::chrono::duration<double>(passed).count() > timeout_s) {
      throw DeviceError("NCCL's all-gather did not end within " +
                        std::to_string(static_cast<int>(timeout_s)) + " s.");
    }
    if (passed > longest_spin) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  is_pending_ = false;
}

}  // namespace graphopt::vulkan
