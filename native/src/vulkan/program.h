// Kernels, recorded programs and submissions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "vulkan/device.h"

namespace graphopt::vulkan {

// How kernels reach their buffers: 64-bit addresses in push constants, or descriptor sets of storage buffers.
enum class Access { address, storage };

// A compute pipeline. Push constants hold, in this order: one address per buffer (access by address),
// parameters.
class Kernel {
 public:
  Kernel(std::shared_ptr<Device> device, const std::string& name, const std::string& spirv, Access access,
         std::uint32_t num_buffers, std::uint32_t params_size,
         const std::map<std::uint32_t, std::uint32_t>& specialization);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& name() const { return name_; }
  Access access() const { return access_; }
  std::uint32_t num_buffers() const { return num_buffers_; }
  std::uint32_t params_size() const { return params_size_; }
  Device& device() const { return *device_; }

 private:
  friend class Recorder;
  void create_layout();
  void create_pipeline(const std::string& spirv,
                       const std::map<std::uint32_t, std::uint32_t>& specialization);
  void destroy();

  std::shared_ptr<Device> device_;
  std::string name_;
  Access access_;
  std::uint32_t num_buffers_, params_size_;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
};

// A finished command buffer and everything it refers to. May be submitted many times, also while in flight.
class Program {
 public:
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::string& label() const { return label_; }
  std::uint32_t num_dispatches() const { return num_dispatches_; }
  std::string description() const;  // label, number of dispatches, names of kernels
  // Nanoseconds from the first timestamp, one per Recorder::timestamp call, of the last finished run.
  std::vector<double> timestamps() const;
  const std::shared_ptr<Device>& device() const { return device_; }
  VkCommandBuffer commands() const { return commands_; }

 private:
  friend class Recorder;
  Program(std::shared_ptr<Device> device, std::string label)
      : device_(std::move(device)), label_(std::move(label)) {}
  void keep(const std::shared_ptr<Buffer>& buffer);

  std::shared_ptr<Device> device_;
  std::string label_;
  RecordingMemory memory_;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  std::vector<VkDescriptorPool> descriptor_pools_;
  bool is_finished_ = false;
  std::uint32_t num_timestamps_ = 0, num_dispatches_ = 0;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  std::unordered_set<std::shared_ptr<Buffer>> buffers_;
};

class Recorder {
 public:
  // label: what errors and tools call the program.
  explicit Recorder(std::shared_ptr<Device> device, const std::string& label = "");

  // groups workgroups in all; folded into two dimensions where one is not enough.
  void dispatch(const std::shared_ptr<Kernel>& kernel, const std::vector<std::shared_ptr<Buffer>>& buffers,
                const std::string& params, std::uint64_t groups);
  // Dispatches from here to end_unless run only where the uint32 at `place` of a buffer is 0 when the device
  // gets here. Copies, fills and timestamps run anyway.
  void begin_unless(const std::shared_ptr<Buffer>& flag, std::uint64_t place);
  void end_unless();
  // What is recorded from here to end_repeat runs `times` times, one after the other; no timestamps.
  void begin_repeat();
  void end_repeat(std::uint64_t times);
  void barrier();  // everything recorded so far is finished and visible to everything that follows
  void copy(const std::shared_ptr<Buffer>& source, const std::shared_ptr<Buffer>& destination,
            std::uint64_t source_offset, std::uint64_t destination_offset, std::uint64_t size);
  void fill(const std::shared_ptr<Buffer>& buffer, std::uint32_t value);
  void timestamp();
  void keep(const std::shared_ptr<Buffer>& buffer);  // as long as the program: kernels know its address
  std::shared_ptr<Program> finish();

 private:
  void require_open() const;
  void check_arguments(const Kernel& kernel, const std::vector<std::shared_ptr<Buffer>>& buffers,
                       const std::string& params) const;
  void bind(const std::shared_ptr<Kernel>& kernel, VkDescriptorSet set, const std::string& push);
  VkDescriptorSet storage_set(Kernel& kernel, const std::vector<std::shared_ptr<Buffer>>& buffers);
  VkDescriptorSet new_set(VkDescriptorSetLayout layout);
  void record(std::function<void()> command);  // now, and as often as it is repeated

  std::shared_ptr<Program> program_;
  VkPipeline bound_ = VK_NULL_HANDLE;
  std::uint32_t sets_left_ = 0;
  bool is_conditional_ = false;
  bool is_repeating_ = false;
  std::vector<std::function<void()>> repeated_;  // commands since begin_repeat
};

// A submission. The device keeps its program alive until it is done; a ticket may be dropped at any time.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<Program> program);
  ~Ticket();

  bool done();
  // Throws DeviceLostError when the device is lost or not done after timeout_s seconds.
  void wait(double timeout_s);
  // False after `seconds` without completion: the caller may wait again.
  bool finishes_within(double seconds);
  // Throws DeviceLostError: it was not done after timeout_s seconds.
  [[noreturn]] void lose(double timeout_s);

 private:
  std::shared_ptr<Program> program_;
  std::uint64_t value_ = 0;
};

}  // namespace graphopt::vulkan
