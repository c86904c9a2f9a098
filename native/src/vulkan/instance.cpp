#include "vulkan/instance.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>

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

// What a variable of the loader that names drivers' files says, and which of them are missing.
std::string describe_variable(const char* name, const char* value) {
  std::string text = std::string(name) + " is '" + value + "'";
  std::istringstream files(value);
  std::error_code error;
  for (std::string file; std::getline(files, file, ':');) {
    if (!file.empty() && !std::filesystem::exists(file, error)) text += ", " + file + " does not exist";
  }
  return text;
}

// Why the loader has no driver, as far as one can tell, and what to do.
std::string no_driver(VkResult result) {
  std::string text = "The Vulkan loader found no driver that works (creating an instance failed with " +
                     result_name(result) + "). ";
  bool is_set = false;
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    is_set = true;
    text += describe_variable(name, value) + ". ";
  }
  if (is_set) {
    text +=
        "It names the only drivers that may be used (.json files, usually of /usr/share/vulkan/icd.d): "
        "correct "
        "or unset it";
  } else {
    text +=
        "Install one (Debian and Ubuntu: apt-get install mesa-vulkan-drivers, or the vendor's; in a "
        "container "
        "NVIDIA's needs NVIDIA_DRIVER_CAPABILITIES=all)";
  }
  return text + ", or use device='cpu'. VK_LOADER_DEBUG=error lets the loader say what it tried.";
}

// Drivers join their threads from exit handlers; a child of fork() does not have these, and would never end.
// It leaves before their turn: handlers registered last run first.
void leave_out_exit_handlers() {
#ifdef __GLIBC__
  const auto leave = [](int status, void*) {
    std::fflush(nullptr);
    _exit(status);
  };
  on_exit(leave, nullptr);
#endif
}

}  // namespace

void Owner::require_this() const {
  if (!is_another()) return;
  throw DeviceError(
      "This process was forked from one that had begun to use Vulkan, and drivers do not survive fork(). "
      "Start "
      "processes with multiprocessing.get_context('spawn'), or let only the children use Vulkan, or go on "
      "with "
      "device='cpu'.");
}

std::shared_ptr<Instance> Instance::get(bool validation) {
  static std::mutex mutex;
  // Never destroyed: drivers and layers do not survive being unloaded from static destructors.
  static auto* instances = new std::shared_ptr<Instance>[2];
  std::lock_guard<std::mutex> lock(mutex);
  auto& instance = instances[validation ? 1 : 0];
  for (int i = 0; i < 2; ++i) {
    if (instances[i]) instances[i]->owner().require_this();
  }
  if (!instance) instance = std::make_shared<Instance>(validation);
  return instance;
}

Instance::Instance(bool validation) : validation_(validation) {
  const GlobalApi& global = global_api();
  static const int registered = pthread_atfork(nullptr, nullptr, leave_out_exit_handlers);
  (void)registered;
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
  const VkResult result = global.vkCreateInstance(&info, nullptr, &instance_);
  if (result != VK_SUCCESS) throw DeviceError(no_driver(result));
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
