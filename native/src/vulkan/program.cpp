#include "vulkan/program.h"

#include <algorithm>

namespace graphopt::vulkan {
namespace {

constexpr std::uint32_t max_timestamps = 256;
constexpr std::uint32_t most_kept_dispatches = 512;  // of a program whose memory others use after it
constexpr std::uint32_t sets_per_pool = 64;
constexpr std::uint32_t buffers_per_set = 16;  // on average; a kernel may have more

}  // namespace

Recorder::Recorder(std::shared_ptr<Device> device, const std::string& label)
    : program_(new Program(device, label)) {
  const DeviceApi& api = device->api();
  // Command pools are externally synchronised: one per program lets threads record at the same time.
  program_->memory_ = device->take_recording_memory();
  program_->commands_ = program_->memory_.commands;
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  check(api.vkBeginCommandBuffer(program_->commands_, &begin), "starting to record");
  barrier();  // after everything submitted before
}

void Recorder::require_open() const {
  if (!program_) throw DeviceError("This recorder is finished; start a new one with Device.record().");
}

void Recorder::record(std::function<void()> command) {
  command();
  if (is_repeating_) repeated_.push_back(std::move(command));
}

void Recorder::begin_repeat() {
  require_open();
  if (is_repeating_) throw DeviceError("Repetitions cannot be nested; end the one before.");
  is_repeating_ = true;
}

void Recorder::end_repeat(std::uint64_t times) {
  require_open();
  if (!is_repeating_) throw DeviceError("No repetition has begun.");
  if (times == 0) throw DeviceError("What is repeated runs at least once.");
  for (std::uint64_t k = 1; k < times; ++k)
    for (const auto& command : repeated_) command();
  repeated_.clear();
  is_repeating_ = false;
}

void Recorder::dispatch(const std::shared_ptr<Kernel>& kernel,
                        const std::vector<std::shared_ptr<Buffer>>& buffers, const std::string& params,
                        std::uint64_t groups) {
  check_arguments(*kernel, buffers, params);
  if (groups == 0) return;
  std::string push;
  VkDescriptorSet set = VK_NULL_HANDLE;
  if (kernel->access() == Access::address) {
    for (const auto& buffer : buffers) {
      const std::uint64_t address = buffer->address();
      push.append(reinterpret_cast<const char*>(&address), sizeof address);
    }
  } else {
    set = storage_set(*kernel, buffers);
  }
  push += params;
  push.resize((push.size() + 3) / 4 * 4, '\0');
  for (const auto& buffer : buffers) program_->keep(buffer);
  // One row while it fits, else rows of 32768: the kernels count workgroups with WORKGROUP of common.glsl.
  const std::uint64_t width = groups <= program_->device_->physical().max_groups_x ? groups : 32768;
  const std::uint64_t height = (groups + width - 1) / width;
  record([this, kernel, set, push, width, height] {
    bind(kernel, set, push);
    program_->device_->api().vkCmdDispatch(program_->commands_, static_cast<std::uint32_t>(width),
                                           static_cast<std::uint32_t>(height), 1);
    ++program_->num_dispatches_;
  });
}

void Recorder::begin_unless(const std::shared_ptr<Buffer>& flag, std::uint64_t place) {
  require_open();
  const DeviceApi& api = program_->device_->api();
  if (!program_->device_->physical().conditional) {
    throw DeviceError("The device " + program_->device_->physical().name +
                      " has no conditional commands (VK_EXT_conditional_rendering).");
  }
  if (is_conditional_) throw DeviceError("Conditions cannot be nested; end the one before.");
  if (place % 4 != 0 || place + 4 > flag->size()) {
    throw DeviceError("The flag is to be at byte " + std::to_string(place) + " of a buffer of " +
                      std::to_string(flag->size()) + " bytes; expected a multiple of 4 within it.");
  }
  VkConditionalRenderingBeginInfoEXT info{};
  info.sType = VK_STRUCTURE_TYPE_CONDITIONAL_RENDERING_BEGIN_INFO_EXT;
  info.buffer = flag->handle();
  info.offset = flag->offset() + place;
  info.flags = VK_CONDITIONAL_RENDERING_INVERTED_BIT_EXT;
  program_->keep(flag);
  is_conditional_ = true;
  record([this, &api, info] {
    VkMemoryBarrier memory{};
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    memory.dstAccessMask = VK_ACCESS_CONDITIONAL_RENDERING_READ_BIT_EXT;
    api.vkCmdPipelineBarrier(
        program_->commands_, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_CONDITIONAL_RENDERING_BIT_EXT, 0, 1, &memory, 0, nullptr, 0, nullptr);
    api.vkCmdBeginConditionalRenderingEXT(program_->commands_, &info);
  });
}

void Recorder::end_unless() {
  require_open();
  if (!is_conditional_) throw DeviceError("No condition has begun.");
  record([this] { program_->device_->api().vkCmdEndConditionalRenderingEXT(program_->commands_); });
  is_conditional_ = false;
}

void Recorder::check_arguments(const Kernel& kernel, const std::vector<std::shared_ptr<Buffer>>& buffers,
                               const std::string& params) const {
  require_open();
  if (buffers.size() == kernel.num_buffers() && params.size() == kernel.params_size()) return;
  throw DeviceError("Kernel '" + kernel.name() + "' takes " + std::to_string(kernel.num_buffers()) +
                    " buffers and " + std::to_string(kernel.params_size()) + " bytes of parameters, got " +
                    std::to_string(buffers.size()) + " and " + std::to_string(params.size()) + ".");
}

void Recorder::bind(const std::shared_ptr<Kernel>& kernel, VkDescriptorSet set, const std::string& push) {
  const DeviceApi& api = program_->device_->api();
  if (bound_ != kernel->pipeline_) {
    api.vkCmdBindPipeline(program_->commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline_);
    bound_ = kernel->pipeline_;
    program_->kernels_.push_back(kernel);
  }
  if (set != VK_NULL_HANDLE) {
    api.vkCmdBindDescriptorSets(program_->commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout_, 0, 1,
                                &set, 0, nullptr);
  }
  if (!push.empty()) {
    api.vkCmdPushConstants(program_->commands_, kernel->layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                           static_cast<std::uint32_t>(push.size()), push.data());
  }
}

VkDescriptorSet Recorder::new_set(VkDescriptorSetLayout layout) {
  const DeviceApi& api = program_->device_->api();
  if (sets_left_ == 0) {
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, sets_per_pool * buffers_per_set};
    VkDescriptorPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    info.maxSets = sets_per_pool;
    info.poolSizeCount = 1;
    info.pPoolSizes = &size;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    check(api.vkCreateDescriptorPool(program_->device_->handle(), &info, nullptr, &pool),
          "creating a descriptor pool");
    program_->descriptor_pools_.push_back(pool);
    sets_left_ = sets_per_pool;
  }
  --sets_left_;
  VkDescriptorSetAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  info.descriptorPool = program_->descriptor_pools_.back();
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = VK_NULL_HANDLE;
  check(api.vkAllocateDescriptorSets(program_->device_->handle(), &info, &set),
        "allocating a descriptor set");
  return set;
}

VkDescriptorSet Recorder::storage_set(Kernel& kernel, const std::vector<std::shared_ptr<Buffer>>& buffers) {
  const DeviceApi& api = program_->device_->api();
  const PhysicalDevice& physical = program_->device_->physical();
  const VkDescriptorSet set = new_set(kernel.set_layout_);
  std::vector<VkDescriptorBufferInfo> infos(buffers.size());
  std::vector<VkWriteDescriptorSet> writes(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i]->size() > physical.max_storage_range) {
      throw DeviceMemoryError("Kernel '" + kernel.name() + "': a buffer of " +
                              std::to_string(buffers[i]->size()) +
                              " bytes is larger than a storage buffer of " + physical.name + " may be (" +
                              std::to_string(physical.max_storage_range) +
                              "). Use a device with buffer addresses, which have no such limit.");
    }
    // Whole words: shaders see no part of one. Allocations are multiples of more than that.
    infos[i] = {buffers[i]->handle(), buffers[i]->offset(), (buffers[i]->size() + 3) / 4 * 4};
    writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    writes[i].dstSet = set;
    writes[i].dstBinding = static_cast<std::uint32_t>(i);
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes[i].pBufferInfo = &infos[i];
  }
  api.vkUpdateDescriptorSets(program_->device_->handle(), static_cast<std::uint32_t>(writes.size()),
                             writes.data(), 0, nullptr);
  return set;
}

void Recorder::keep(const std::shared_ptr<Buffer>& buffer) {
  require_open();
  program_->keep(buffer);
}

void Recorder::barrier() {
  require_open();
  record([this] {
    constexpr VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkMemoryBarrier memory{};
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                           VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    program_->device_->api().vkCmdPipelineBarrier(program_->commands_, stages, stages, 0, 1, &memory, 0,
                                                  nullptr, 0, nullptr);
  });
}

void Recorder::copy(const std::shared_ptr<Buffer>& source, const std::shared_ptr<Buffer>& destination,
                    std::uint64_t source_offset, std::uint64_t destination_offset, std::uint64_t size) {
  require_open();
  if (source_offset + size > source->size() || destination_offset + size > destination->size()) {
    throw DeviceError("Copy of " + std::to_string(size) + " bytes goes past the end of a buffer (source " +
                      std::to_string(source_offset) + " of " + std::to_string(source->size()) +
                      ", destination " + std::to_string(destination_offset) + " of " +
                      std::to_string(destination->size()) + ").");
  }
  if (size == 0) return;
  const VkBufferCopy region{source->offset() + source_offset, destination->offset() + destination_offset,
                            size};
  program_->keep(source);
  program_->keep(destination);
  record([this, region, from = source->handle(), to = destination->handle()] {
    program_->device_->api().vkCmdCopyBuffer(program_->commands_, from, to, 1, &region);
  });
}

void Recorder::fill(const std::shared_ptr<Buffer>& buffer, std::uint32_t value) {
  require_open();
  const std::uint64_t size = (buffer->size() + 3) / 4 * 4;  // inside the 256-byte granule of the allocation
  program_->keep(buffer);
  record([this, size, value, to = buffer->handle(), offset = buffer->offset()] {
    program_->device_->api().vkCmdFillBuffer(program_->commands_, to, offset, size, value);
  });
}

void Recorder::timestamp() {
  require_open();
  if (is_repeating_) throw DeviceError("A timestamp cannot be repeated; end the repetition before.");
  Program& program = *program_;
  const DeviceApi& api = program.device_->api();
  VkQueryPool& queries = program.memory_.queries;
  if (queries == VK_NULL_HANDLE) {
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = max_timestamps;
    check(api.vkCreateQueryPool(program.device_->handle(), &info, nullptr, &queries),
          "creating a query pool");
  }
  if (program.num_timestamps_ == 0) {
    api.vkCmdResetQueryPool(program.commands_, queries, 0, max_timestamps);
  }
  if (program.num_timestamps_ == max_timestamps) {
    throw DeviceError("A program has at most " + std::to_string(max_timestamps) + " timestamps.");
  }
  api.vkCmdWriteTimestamp(program.commands_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries,
                          program.num_timestamps_++);
}

std::shared_ptr<Program> Recorder::finish() {
  require_open();
  if (is_conditional_) throw DeviceError("A condition has not ended; call end_unless.");
  if (is_repeating_) throw DeviceError("A repetition has not ended; call end_repeat.");
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  const DeviceApi& api = program_->device_->api();
  api.vkCmdPipelineBarrier(program_->commands_,
                           VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                           VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &memory, 0, nullptr, 0, nullptr);
  check(api.vkEndCommandBuffer(program_->commands_), "finishing a program");
  program_->is_finished_ = true;
  return std::move(program_);
}

std::vector<double> Program::timestamps() const {
  if (num_timestamps_ == 0) return {};
  std::vector<std::uint64_t> ticks(num_timestamps_);
  check(device_->api().vkGetQueryPoolResults(device_->handle(), memory_.queries, 0, num_timestamps_,
                                             8 * ticks.size(), ticks.data(), 8, VK_QUERY_RESULT_64_BIT),
        "reading timestamps");
  const PhysicalDevice& physical = device_->physical();
  const std::uint64_t mask =
      physical.timestamp_bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << physical.timestamp_bits) - 1;
  std::vector<double> out(ticks.size());
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    out[i] =
        static_cast<double>((ticks[i] - ticks[0]) & mask) * static_cast<double>(physical.timestamp_period);
  }
  return out;
}

Program::~Program() {
  if (device_->is_inherited()) return;
  const DeviceApi& api = device_->api();
  for (VkDescriptorPool pool : descriptor_pools_)
    api.vkDestroyDescriptorPool(device_->handle(), pool, nullptr);
  device_->give_recording_memory(memory_, is_finished_ && num_dispatches_ <= most_kept_dispatches);
}

void Program::keep(const std::shared_ptr<Buffer>& buffer) { buffers_.insert(buffer); }

std::string Program::description() const {
  constexpr std::size_t most_names = 4;
  std::vector<std::string> names;
  for (const auto& kernel : kernels_) {
    if (std::find(names.begin(), names.end(), kernel->name()) == names.end()) names.push_back(kernel->name());
  }
  std::string text = label_.empty() ? "a program of " : "'" + label_ + "', a program of ";
  text += std::to_string(num_dispatches_) + " dispatches";
  for (std::size_t i = 0; i < std::min(names.size(), most_names); ++i)
    text += (i == 0 ? " (" : ", ") + names[i];
  if (names.size() > most_names) text += ", ...";
  return names.empty() ? text : text + ")";
}

Ticket::Ticket(std::shared_ptr<Program> program) : program_(std::move(program)) {
  value_ = program_->device()->submit(program_);
}

Ticket::~Ticket() {
  // The device keeps the program while it runs, and is told to look whether it still does.
  const std::shared_ptr<Device> device = program_->device();
  program_.reset();
  device->release_finished();
}

bool Ticket::done() { return program_->device()->done(value_); }

void Ticket::wait(double timeout_s) {
  if (!finishes_within(timeout_s)) lose(timeout_s);
}

bool Ticket::finishes_within(double seconds) { return program_->device()->wait(value_, seconds); }

void Ticket::lose(double timeout_s) {
  Device& device = *program_->device();
  const std::string running = program_->description();
  const std::string text = "The device " + device.physical().name + " did not finish " + running +
                           " within " + std::to_string(timeout_s) + " s.";
  device.note_loss(text, running);
  throw DeviceLostError(text, device.physical().name, running);
}

}  // namespace graphopt::vulkan
