#include "vulkan/instance.h"

#include <cstring>

#include "vulkan/error.h"

namespace graphopt::vulkan {
namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";

bool layer_present(const char* name) {
  const GlobalApi& api = global_api();
  std::uint32_t count = 0;
  check(api.vkEnumerateInstanceLayerProperties(&count, nullptr), "listing layers");
  std::vector<VkLayerProperties> layers(count);
  check(api.vkEnumerateInstanceLayerProperties(&count, layers.data()), "listing layers");
  for (const auto& layer : layers) {
    if (std::strcmp(layer.layerName, name) == 0) return true;
  }
  return false;
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
  static_cast<Instance*>(user)->add_message(data->pMessage);
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(Instance* instance) {
  VkDebugUtilsMessengerCreateInfoEXT info{};
  info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  // Not "general": that is the loader talking about drivers it could not open.
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = on_message;
  info.pUserData = instance;
  return info;
}

}  // namespace

std::shared_ptr<Instance> Instance::get(bool validation) {
  static std::mutex mutex;
  // Never destroyed: drivers and layers do not survive being unloaded from static destructors.
  static auto* instances = new std::shared_ptr<Instance>[2];
  std::lock_guard<std::mutex> lock(mutex);
  auto& instance = instances[validation ? 1 : 0];
  if (!instance) instance = std::make_shared<Instance>(validation);
  return instance;
}

Instance::Instance(bool validation) : validation_(validation) {
  const GlobalApi& global = global_api();
  if (validation && !layer_present(validation_layer)) {
    throw DeviceError(
        "The Vulkan validation layer was asked for but is not installed. On Debian and Ubuntu: apt-get "
        "install "
        "vulkan-validationlayers; or open the device without validation.");
  }
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "graphopt";
  application.apiVersion = VK_API_VERSION_1_2;
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const VkDebugUtilsMessengerCreateInfoEXT messages = messenger_info(this);
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  if (validation) {
    info.pNext = &messages;
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &validation_layer;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &extension;
  }
  check(global.vkCreateInstance(&info, nullptr, &instance_), "creating the Vulkan instance");
  api_ = load_instance_api(instance_);
  if (validation) {
    check(api_.vkCreateDebugUtilsMessengerEXT(instance_, &messages, nullptr, &messenger_),
          "listening to the validation layer");
  }
  enumerate();
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) api_.vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  if (instance_ != VK_NULL_HANDLE) api_.vkDestroyInstance(instance_, nullptr);
}

std::vector<std::string> Instance::messages() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return messages_;
}

void Instance::clear_messages() {
  std::lock_guard<std::mutex> lock(mutex_);
  messages_.clear();
}

void Instance::add_message(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (messages_.size() < 1000) messages_.push_back(text);
}

}  // namespace graphopt::vulkan
