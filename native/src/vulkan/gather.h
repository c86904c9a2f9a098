// Bytes of all ranks, brought to each rank's device by a library that has its own way between devices (NCCL).
//
//   gathered = [ bytes of rank 0 | bytes of rank 1 | ... ]
//
// The library is opened in Python (graphopt/distributed/nccl.py) and called here by address, so that this
// builds without its headers. Its pointers are those of exported buffers, imported there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphopt::vulkan {

// Functions of CUDA's driver and of NCCL; all return 0 for success.
struct GatherCalls {
  int (*push_context)(void* context);  // of the calling thread
  int (*pop_context)(void** context);
  int (*query)(void* stream);  // `not_ready` while something is under way
  int (*all_gather)(const void* source, void* target, std::size_t count, int type, void* communicator,
                    void* stream);
};

struct GatherPlace {
  void *context, *stream, *communicator;
  const void* source;  // of `bytes`
  void* target;        // of `bytes` of each rank
  std::size_t bytes;
};

class Gather {
 public:
  Gather(const GatherCalls& calls, const GatherPlace& place) : calls_(calls), place_(place) {}

  // After the device has finished what writes the source. Returns at once; all ranks begin the same ones in
  // the same order. Throws DeviceError.
  void begin();
  // Until the target is there; at once where nothing has begun. To be called when all ranks have begun: one
  // that never does would be waited for. Throws DeviceError, also after `timeout_s` seconds.
  void wait(double timeout_s);
  bool is_pending() const { return is_pending_; }

 private:
  GatherCalls calls_;
  GatherPlace place_;
  bool is_pending_ = false;
};

}  // namespace graphopt::vulkan
