// A logical device: one compute queue, one timeline semaphore, a memory pool, transfers, a pipeline cache
// kept on disk.
//
// Programs that run and buffers that a transfer needs are kept alive here until the device is done with them
// (`in_flight_`), so that nobody has to wait for a submission only to forget it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vulkan/error.h"
#include "vulkan/instance.h"
#include "vulkan/memory.h"
#include "vulkan/transfers.h"

namespace graphopt::vulkan {

class Program;

struct DeviceOptions {
  bool validation = false;
  std::set<std::string> masked;  // features treated as missing: float64, buffer_address,
                                 // subgroup_size_control, conditional, exports_memory,
                                 // exports_semaphore, imports_host
  std::string memory_scheme;     // "single", "staged", "rebar"; empty: chosen by the kind of device
};

// What commands are recorded into. Taking it from a driver takes longer than recording a short program.
struct RecordingMemory {
  VkCommandPool pool = VK_NULL_HANDLE;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VkQueryPool queries = VK_NULL_HANDLE;  // once a program has used timestamps
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  Device(std::size_t index, const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const PhysicalDevice& physical() const { return physical_; }  // features after masking
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return device_; }
  Instance& instance() { return *instance_; }
  MemoryPool& memory() { return *memory_; }
  const std::string& memory_scheme() const { return scheme_; }
  // Empty memory for a program, of one that is no more, or new.
  RecordingMemory take_recording_memory();
  // Of a program that does not run any more; others may use it, or it goes. Never throws.
  void give_recording_memory(const RecordingMemory& memory, bool is_reusable) noexcept;

  VkPipelineCache pipeline_cache() const { return pipeline_cache_; }

  Transfers& transfers() { return *transfers_; }

  // Submit after everything submitted before; returns the timeline value that is reached when it is done.
  // Without a program: what was written before, alone. is_exported: the semaphore that another API has taken
  // reaches this value as well.
  std::uint64_t submit(const std::shared_ptr<Program>& program, bool is_exported = false);
  // A timeline semaphore, one for all calls, as a file descriptor; who imports it owns the descriptor.
  int export_semaphore();
  // False after timeout_s seconds without completion. Throws DeviceLostError.
  bool wait(std::uint64_t value, double timeout_s);
  bool done(std::uint64_t value);
  void wait_idle();
  std::uint64_t last_submitted();
  // Let go of programs and buffers that the device is done with. Never throws, never waits.
  void release_finished() noexcept;

  // A lost device, by the driver's word or because it did not answer in time, takes no more work: every
  // submission throws the first error again.
  bool is_lost() const { return is_inherited() || lost_.load(std::memory_order_acquire); }
  void note_loss(const std::string& text, const std::string& running) noexcept;
  std::string running();  // what the device works on at the moment
  void require_present();
  // Opened before a fork(), by a parent of this process: whatever waits or locks is refused, and what holds a
  // part of it is forgotten without a word to the driver.
  bool is_inherited() const { return owner_.is_another(); }
  const Owner& owner() const { return owner_; }

  // For `Transfers`, which calls them with this mutex held.
  std::mutex& queue_mutex() { return queue_mutex_; }
  std::uint64_t reached();
  std::uint64_t next_value() const { return submitted_ + 1; }
  void submit_noted();
  void submit_commands(const std::vector<VkCommandBuffer>& commands,
                       std::vector<std::shared_ptr<Buffer>> needed, const std::shared_ptr<Program>& program,
                       bool is_exported = false);
  void wait_or_lose(std::uint64_t value, const char* what);

  void break_call(const std::string& call, const std::string& result, long at);  // for tests, see faults.h
  long mend_calls();                                                             // returns how many failed

  // What drivers have compiled: to be given, unchanged and before the first kernel, to the next device of
  // this name. `take` returns nothing where nothing was added since, or where the device is lost.
  std::string pipeline_cache_name() const;
  void create_pipeline_cache(const std::string& data);
  std::string take_pipeline_cache();

 private:
  struct InFlight {
    std::uint64_t value;
    std::shared_ptr<Program> program;
    std::vector<std::shared_ptr<Buffer>> buffers;
  };

  void create_device();
  VkSemaphore create_timeline(const void* exported);
  void destroy(const RecordingMemory& memory) noexcept;
  void leak() noexcept;  // memory that is still written to, or another process'
  bool reached_soon(std::uint64_t value);
  DeviceLostError lost_in(const char* what);
  void check(VkResult result, const char* what);
  std::string running_locked();
  std::vector<InFlight> take_finished(std::uint64_t reached);

  Owner owner_;
  std::shared_ptr<Instance> instance_;
  PhysicalDevice physical_;
  DeviceOptions options_;
  std::string scheme_;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceApi api_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkSemaphore exported_ = VK_NULL_HANDLE;  // once it was asked for
  VkPipelineCache pipeline_cache_ = VK_NULL_HANDLE;
  std::mutex cache_mutex_;
  std::size_t taken_cache_size_ = 0;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<Transfers> transfers_;
  std::mutex queue_mutex_;
  std::uint64_t submitted_ = 0;
  std::deque<InFlight> in_flight_;
  std::mutex recording_mutex_;
  std::vector<RecordingMemory> kept_memory_;
  std::atomic<bool> lost_{false};
  mutable std::mutex loss_mutex_;
  std::string loss_, loss_running_;
};

}  // namespace graphopt::vulkan
