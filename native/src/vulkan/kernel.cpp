#include <algorithm>

#include "vulkan/program.h"

namespace graphopt::vulkan {

Kernel::Kernel(std::shared_ptr<Device> device, const std::string& name, const std::string& spirv,
               Access access, std::uint32_t num_buffers, std::uint32_t params_size,
               const std::map<std::uint32_t, std::uint32_t>& specialization)
    : device_(std::move(device)),
      name_(name),
      access_(access),
      num_buffers_(num_buffers),
      params_size_(params_size) {
  if (spirv.size() < 20 || spirv.size() % 4 != 0) throw DeviceError("Kernel '" + name + "' is not SPIR-V.");
  if (access == Access::address && !device_->physical().buffer_address) {
    throw DeviceError("Kernel '" + name + "' takes buffer addresses, which " + device_->physical().name +
                      " does not have; use its storage-buffer variant.");
  }
  device_->owner().require_this();
  try {
    create_layout();
    create_pipeline(spirv, specialization);
  } catch (...) {
    destroy();
    throw;
  }
}

void Kernel::create_layout() {
  const DeviceApi& api = device_->api();
  const std::uint32_t size = params_size_ + (access_ == Access::address ? 8 * num_buffers_ : 0);
  if (size > device_->physical().max_push_constants) {
    throw DeviceError("Kernel '" + name_ + "' needs " + std::to_string(size) + " bytes of push constants; " +
                      device_->physical().name + " has " +
                      std::to_string(device_->physical().max_push_constants) + ".");
  }
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  if (access_ == Access::storage) {
    std::vector<VkDescriptorSetLayoutBinding> bindings(num_buffers_);
    for (std::uint32_t i = 0; i < num_buffers_; ++i) {
      bindings[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
    }
    VkDescriptorSetLayoutCreateInfo sets{};
    sets.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
    sets.bindingCount = num_buffers_;
    sets.pBindings = bindings.data();
    check(api.vkCreateDescriptorSetLayout(device_->handle(), &sets, nullptr, &set_layout_),
          "creating a descriptor set layout");
    info.setLayoutCount = 1;
    info.pSetLayouts = &set_layout_;
  }
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, (size + 3) / 4 * 4};
  if (size > 0) {
    info.pushConstantRangeCount = 1;
    info.pPushConstantRanges = &range;
  }
  check(api.vkCreatePipelineLayout(device_->handle(), &info, nullptr, &layout_),
        "creating a pipeline layout");
}

void Kernel::create_pipeline(const std::string& spirv,
                             const std::map<std::uint32_t, std::uint32_t>& specialization) {
  const DeviceApi& api = device_->api();
  std::vector<std::uint32_t> code(spirv.size() / 4);
  std::copy(spirv.begin(), spirv.end(), reinterpret_cast<char*>(code.data()));
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = spirv.size();
  module_info.pCode = code.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(api.vkCreateShaderModule(device_->handle(), &module_info, nullptr, &module), "loading a shader");

  std::vector<VkSpecializationMapEntry> entries;
  std::vector<std::uint32_t> values;
  for (const auto& [id, value] : specialization) {
    entries.push_back({id, static_cast<std::uint32_t>(4 * values.size()), 4});
    values.push_back(value);
  }
  const VkSpecializationInfo constants{static_cast<std::uint32_t>(entries.size()), entries.data(),
                                       4 * values.size(), values.data()};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  const VkResult result = api.vkCreateComputePipelines(device_->handle(), device_->pipeline_cache(), 1, &info,
                                                       nullptr, &pipeline_);
  api.vkDestroyShaderModule(device_->handle(), module, nullptr);
  check(result, ("building kernel '" + name_ + "'").c_str());
}

void Kernel::destroy() {
  if (device_->is_inherited()) return;
  const DeviceApi& api = device_->api();
  api.vkDestroyPipeline(device_->handle(), pipeline_, nullptr);
  api.vkDestroyPipelineLayout(device_->handle(), layout_, nullptr);
  api.vkDestroyDescriptorSetLayout(device_->handle(), set_layout_, nullptr);
}

Kernel::~Kernel() { destroy(); }

}  // namespace graphopt::vulkan
