#include "vulkan/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>

#include "parallel/waiting.h"
#include "vulkan/faults.h"
#include "vulkan/program.h"

namespace graphopt::vulkan {
namespace {

void mask_features(PhysicalDevice& device, const std::set<std::string>& masked) {
  for (const std::string& name : masked) {
    if (name == "float64") {
      device.float64 = false;
    } else if (name == "buffer_address") {
      device.buffer_address = false;
    } else if (name == "subgroup_size_control") {
      device.subgroup_size_control = false;
    } else if (name == "conditional") {
      device.conditional = false;
    } else if (name == "exports_memory") {
      device.exports_memory = false;
    } else if (name == "exports_semaphore") {
      device.exports_semaphore = false;
    } else if (name == "imports_host") {
      device.host_alignment = 0;
    } else {
      throw DeviceError("Feature '" + name +
                        "' cannot be masked; expected float64, buffer_address, subgroup_size_control, "
                        "conditional, exports_memory, exports_semaphore or imports_host.");
    }
  }
}

// How long a loop asks before the thread sleeps. Waking one takes 50 us and more on virtual machines, which
// is much of a trial of half a millisecond; a device of its own leaves the core to whoever waits for it.
constexpr int spin_microseconds = 2000, spin_microseconds_shared = 100;
// Programs that solvers record anew: some per solver.
constexpr std::size_t most_kept_memory = 16;
constexpr double longest_end = 10.0;        // [s] that closing a device waits for its last transfers
constexpr double longest_transfer = 600.0;  // [s]

std::string choose_scheme(const PhysicalDevice& device, const std::string& asked) {
  if (asked.empty()) return device.kind == "discrete" || device.kind == "virtual" ? "staged" : "single";
  if (asked != "single" && asked != "staged" && asked != "rebar") {
    throw DeviceError("memory_scheme is '" + asked + "', expected single, staged or rebar.");
  }
  return asked;
}

}  // namespace

Device::Device(std::size_t index, const DeviceOptions& options)
    : instance_(Instance::get(options.validation)), options_(options) {
  if (index >= instance_->devices().size()) {
    throw DeviceError("Vulkan device " + std::to_string(index) + " does not exist: there are " +
                      std::to_string(instance_->devices().size()) +
                      " with Vulkan 1.2. `graphopt devices` lists them.");
  }
  physical_ = instance_->devices()[index];
  mask_features(physical_, options.masked);
  scheme_ = choose_scheme(physical_, options.memory_scheme);
  kept_memory_.reserve(most_kept_memory);
  create_device();
  create_pipeline_cache("");
  memory_ = std::make_unique<MemoryPool>(*this);
  transfers_ = std::make_unique<Transfers>(*this);
}

void Device::create_device() {
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = physical_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;

  VkPhysicalDeviceSubgroupSizeControlFeatures size_control{};
  size_control.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  size_control.subgroupSizeControl = VK_TRUE;
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features12.timelineSemaphore = VK_TRUE;
  features12.scalarBlockLayout = physical_.scalar_layout ? VK_TRUE : VK_FALSE;
  features12.bufferDeviceAddress = physical_.buffer_address ? VK_TRUE : VK_FALSE;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features12;
  features.features.shaderFloat64 = physical_.float64 ? VK_TRUE : VK_FALSE;
  features.features.shaderInt64 = physical_.int64 ? VK_TRUE : VK_FALSE;

  std::vector<const char*> extensions;
  if (physical_.subgroup_size_control) {
    extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    features12.pNext = &size_control;
  }
  VkPhysicalDeviceConditionalRenderingFeaturesEXT conditional{};
  conditional.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT;
  conditional.conditionalRendering = VK_TRUE;
  if (physical_.conditional) {
    extensions.push_back(VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME);
    conditional.pNext = features12.pNext;
    features12.pNext = &conditional;
  }
  if (physical_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (physical_.exports_memory) extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  if (physical_.exports_semaphore) extensions.push_back(VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  if (physical_.host_alignment > 0) extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);

  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  vulkan::check(instance_->api().vkCreateDevice(physical_.handle, &info, nullptr, &device_),
                "opening the device");
  api_ = load_device_api(instance_->api(), device_);
  api_.vkGetDeviceQueue(device_, physical_.queue_family, 0, &queue_);

  timeline_ = create_timeline(nullptr);
}

VkSemaphore Device::create_timeline(const void* exported) {
  VkSemaphoreTypeCreateInfo type{};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.pNext = exported;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  info.pNext = &type;
  VkSemaphore made = VK_NULL_HANDLE;
  vulkan::check(api_.vkCreateSemaphore(device_, &info, nullptr, &made), "creating a timeline semaphore");
  return made;
}

Device::~Device() {
  if (device_ == VK_NULL_HANDLE) return;
  if (is_inherited()) {
    leak();
    return;
  }
  // Only transfers can still be on their way: a program in flight keeps its device. One that hangs is left to
  // the end of the process, with the memory that it may still write.
  bool is_hanging = false;
  if (!is_lost()) {
    try {
      is_hanging = !wait(submitted_, longest_end);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "graphopt: closing a device: %s\n", error.what());
    }
  } else {
    std::uint64_t now = 0;  // given up by the driver, which then answers at once, or silent for a minute
    const VkResult result = api_.vkGetSemaphoreCounterValue(device_, timeline_, &now);
    is_hanging = result == VK_SUCCESS && now < submitted_;
  }
  if (is_hanging) {
    leak();
    return;
  }
  for (const RecordingMemory& one : kept_memory_) destroy(one);
  transfers_.reset();
  memory_.reset();
  api_.vkDestroyPipelineCache(device_, pipeline_cache_, nullptr);
  api_.vkDestroySemaphore(device_, exported_, nullptr);
  api_.vkDestroySemaphore(device_, timeline_, nullptr);
  api_.vkDestroyDevice(device_, nullptr);
}

RecordingMemory Device::take_recording_memory() {
  {
    std::lock_guard<std::mutex> lock(recording_mutex_);
    if (!kept_memory_.empty()) {
      const RecordingMemory found = kept_memory_.back();
      kept_memory_.pop_back();
      return found;
    }
  }
  RecordingMemory made;
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.queueFamilyIndex = physical_.queue_family;
  check(api_.vkCreateCommandPool(device_, &pool, nullptr, &made.pool), "creating a command pool");
  VkCommandBufferAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  info.commandPool = made.pool;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  const VkResult result = api_.vkAllocateCommandBuffers(device_, &info, &made.commands);
  if (result != VK_SUCCESS) destroy(made);
  check(result, "allocating commands");
  return made;
}

void Device::give_recording_memory(const RecordingMemory& memory, bool is_reusable) noexcept {
  if (memory.pool == VK_NULL_HANDLE) return;
  if (is_reusable && !is_lost() && api_.vkResetCommandPool(device_, memory.pool, 0) == VK_SUCCESS) {
    std::lock_guard<std::mutex> lock(recording_mutex_);
    if (kept_memory_.size() < most_kept_memory) {
      kept_memory_.push_back(memory);  // reserved: throws nothing
      return;
    }
  }
  destroy(memory);
}

void Device::destroy(const RecordingMemory& memory) noexcept {
  if (memory.queries != VK_NULL_HANDLE) api_.vkDestroyQueryPool(device_, memory.queries, nullptr);
  if (memory.pool != VK_NULL_HANDLE) api_.vkDestroyCommandPool(device_, memory.pool, nullptr);
}

void Device::leak() noexcept {
  (void)transfers_.release();
  (void)memory_.release();
}

void Device::note_loss(const std::string& text, const std::string& running) noexcept {
  std::lock_guard<std::mutex> lock(loss_mutex_);
  if (lost_) return;
  try {
    loss_ = text;
    loss_running_ = running;
  } catch (const std::bad_alloc&) {  // the flag alone has to do
  }
  lost_.store(true, std::memory_order_release);
}

void Device::require_present() {
  owner_.require_this();
  if (!is_lost()) return;
  std::lock_guard<std::mutex> lock(loss_mutex_);
  throw DeviceLostError(loss_ + " It takes no more work; open it again, or go on with device='cpu'.",
                        physical_.name, loss_running_);
}

std::string Device::running() {
  owner_.require_this();
  std::lock_guard<std::mutex> lock(queue_mutex_);
  return running_locked();
}

std::string Device::running_locked() {
  for (const InFlight& one : in_flight_) {
    if (one.program) return one.program->description();
  }
  return in_flight_.empty() ? "nothing" : "transfers";
}

// Note that the driver said so, with what the device was doing. Called with the queue's mutex.
DeviceLostError Device::lost_in(const char* what) {
  const std::string running = running_locked();
  const std::string text =
      std::string("The device ") + physical_.name + " was lost (" + what +
      " failed with VK_ERROR_DEVICE_LOST: the driver reset or removed it) while it ran " + running + ".";
  note_loss(text, running);
  return DeviceLostError(text, physical_.name, running);
}

// Throw unless it is VK_SUCCESS. Called with the queue's mutex.
void Device::check(VkResult result, const char* what) {
  if (result == VK_ERROR_DEVICE_LOST) throw lost_in(what);
  vulkan::check(result, what);
}

std::uint64_t Device::reached() {
  std::uint64_t now = 0;
  check(api_.vkGetSemaphoreCounterValue(device_, timeline_, &now), "asking the device for progress");
  return now;
}

std::vector<Device::InFlight> Device::take_finished(std::uint64_t reached) {
  std::vector<InFlight> finished;
  while (!in_flight_.empty() && in_flight_.front().value <= reached) {
    finished.push_back(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
  return finished;
}

void Device::release_finished() noexcept {
  if (is_inherited()) return;
  std::vector<InFlight> finished;  // destroyed without the lock: buffers go back to the pool
  std::lock_guard<std::mutex> lock(queue_mutex_);
  if (in_flight_.empty()) return;
  std::uint64_t now = 0;
  const VkResult result = api_.vkGetSemaphoreCounterValue(device_, timeline_, &now);
  try {
    if (result == VK_ERROR_DEVICE_LOST) {
      lost_in("asking the device for progress");  // whoever submits hears of it
      // a driver that has given it up goes on saying so, and nothing runs any more; else everything may
      if (api_.vkGetSemaphoreCounterValue(device_, timeline_, &now) == VK_ERROR_DEVICE_LOST) now = submitted_;
    }
    finished = take_finished(now);
  } catch (const std::bad_alloc&) {  // another time
  }
}

void Device::submit_commands(const std::vector<VkCommandBuffer>& commands,
                             std::vector<std::shared_ptr<Buffer>> needed,
                             const std::shared_ptr<Program>& program, bool is_exported) {
  const std::uint64_t value = submitted_ + 1;
  const std::array<VkSemaphore, 2> semaphores = {timeline_, exported_};
  const std::array<std::uint64_t, 2> values = {value, value};
  const std::uint32_t num_semaphores = is_exported ? 2 : 1;
  VkTimelineSemaphoreSubmitInfo timeline{};
  timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  timeline.signalSemaphoreValueCount = num_semaphores;
  timeline.pSignalSemaphoreValues = values.data();
  std::vector<VkCommandBuffer> present;
  for (VkCommandBuffer one : commands) {
    if (one != VK_NULL_HANDLE) present.push_back(one);
  }
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &timeline;
  info.commandBufferCount = static_cast<std::uint32_t>(present.size());
  info.pCommandBuffers = present.data();
  info.signalSemaphoreCount = num_semaphores;
  info.pSignalSemaphores = semaphores.data();
  in_flight_.push_back({value, program, std::move(needed)});
  try {
    check(api_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), "submitting to the device");
  } catch (...) {
    in_flight_.pop_back();
    throw;
  }
  submitted_ = value;
}

void Device::submit_noted() {
  require_present();
  std::vector<std::shared_ptr<Buffer>> needed;
  const VkCommandBuffer commands = transfers_->take_noted(next_value(), needed);
  if (commands != VK_NULL_HANDLE) submit_commands({commands}, std::move(needed), nullptr);
}

int Device::export_semaphore() {
  owner_.require_this();
  if (!physical_.exports_semaphore) {
    throw DeviceError("The driver of " + physical_.name +
                      " does not export semaphores (VK_KHR_external_semaphore_fd) to other libraries.");
  }
  std::lock_guard<std::mutex> lock(queue_mutex_);
  if (exported_ == VK_NULL_HANDLE) {
    VkExportSemaphoreCreateInfo exported{};
    exported.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO;
    exported.handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    exported_ = create_timeline(&exported);
  }
  VkSemaphoreGetFdInfoKHR info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR;
  info.semaphore = exported_;
  info.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  int descriptor = -1;
  vulkan::check(api_.vkGetSemaphoreFdKHR(device_, &info, &descriptor), "exporting a semaphore");
  return descriptor;
}

std::uint64_t Device::submit(const std::shared_ptr<Program>& program, bool is_exported) {
  owner_.require_this();
  release_finished();
  std::lock_guard<std::mutex> lock(queue_mutex_);
  require_present();
  if (is_exported && exported_ == VK_NULL_HANDLE) {
    throw DeviceError("No semaphore of this device has been exported: nobody would see the end.");
  }
  std::vector<std::shared_ptr<Buffer>> needed;
  const VkCommandBuffer transfers = transfers_->take_noted(next_value(), needed);
  const VkCommandBuffer commands = program ? program->commands() : VK_NULL_HANDLE;
  submit_commands({transfers, commands}, std::move(needed), program, is_exported);
  return submitted_;
}

std::uint64_t Device::last_submitted() {
  owner_.require_this();
  std::lock_guard<std::mutex> lock(queue_mutex_);
  return submitted_;
}

// Whether it is reached soon: a short program is waited for without sleeping. Software drivers need the core
// themselves, and a device that shares memory with the host shares its power, too.
bool Device::reached_soon(std::uint64_t value) {
  if (physical_.kind == "cpu") return false;
  std::uint64_t now = 0;
  VkResult result = VK_SUCCESS;
  const auto is_over = [&] {
    result = api_.vkGetSemaphoreCounterValue(device_, timeline_, &now);
    return result != VK_SUCCESS || now >= value;
  };
  const bool is_own = physical_.kind == "discrete" || physical_.kind == "virtual";
  return spin_until(is_over, is_own ? spin_microseconds : spin_microseconds_shared) && result == VK_SUCCESS;
}

bool Device::wait(std::uint64_t value, double timeout_s) {
  owner_.require_this();
  if (timeout_s > 0.0 && reached_soon(value)) {
    release_finished();
    return true;
  }
  VkSemaphoreWaitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  const double ns = std::min(std::max(timeout_s, 0.0) * 1e9, 9e18);
  const VkResult result = api_.vkWaitSemaphores(device_, &info, static_cast<std::uint64_t>(ns));
  if (result == VK_TIMEOUT) return false;
  if (result != VK_SUCCESS) {
    std::lock_guard<std::mutex> lock(queue_mutex_);
    check(result, "waiting for the device");
  }
  release_finished();
  return true;
}

void Device::wait_or_lose(std::uint64_t value, const char* what) {
  if (wait(value, longest_transfer)) return;
  const std::string text = "The device " + physical_.name + " did not finish " + what + " within " +
                           std::to_string(static_cast<int>(longest_transfer)) + " s; it ran " + running() +
                           ".";
  note_loss(text, running());
  throw DeviceLostError(text, physical_.name, running());
}

bool Device::done(std::uint64_t value) {
  owner_.require_this();
  std::lock_guard<std::mutex> lock(queue_mutex_);
  return reached() >= value;
}

void Device::wait_idle() {
  owner_.require_this();
  transfers_->flush();
  {
    std::lock_guard<std::mutex> lock(queue_mutex_);
    check(api_.vkDeviceWaitIdle(device_), "waiting for the device");
  }
  release_finished();
}

void Device::break_call(const std::string& call, const std::string& result, long at) {
  vulkan::break_call(api_, call, result, at);
}

long Device::mend_calls() {
  api_ = load_device_api(instance_->api(), device_);
  return faults_since_last_asked();
}

std::string Device::pipeline_cache_name() const {
  char name[128];
  std::snprintf(name, sizeof name, "pipelines-%08x-%08x-%08x-%s.bin", physical_.vendor_id,
                physical_.device_id, physical_.driver_version, physical_.cache_uuid.c_str());
  return name;
}

void Device::create_pipeline_cache(const std::string& data) {
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  VkPipelineCache cache = VK_NULL_HANDLE;
  vulkan::check(api_.vkCreatePipelineCache(device_, &info, nullptr, &cache), "creating the pipeline cache");
  api_.vkDestroyPipelineCache(device_, pipeline_cache_, nullptr);
  pipeline_cache_ = cache;
  taken_cache_size_ = data.size();
}

std::string Device::take_pipeline_cache() {
  if (is_inherited() || is_lost()) return "";
  std::lock_guard<std::mutex> lock(cache_mutex_);
  std::size_t size = 0;
  vulkan::check(api_.vkGetPipelineCacheData(device_, pipeline_cache_, &size, nullptr),
                "reading the pipeline cache");
  if (size == taken_cache_size_) return "";
  std::string data(size, '\0');
  vulkan::check(api_.vkGetPipelineCacheData(device_, pipeline_cache_, &size, data.data()),
                "reading the pipeline cache");
  data.resize(size);
  taken_cache_size_ = size;
  return data;
}

}  // namespace graphopt::vulkan
