// `graphopt._glslang`: GLSL compute shaders to SPIR-V in process. The Python side is graphopt.pyglslang.
#include <glslang/Include/ResourceLimits.h>
#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace py = pybind11;

namespace {

// Looks for `#include "x"` beside the including file first, then in the given folders.
class FolderIncluder : public glslang::TShader::Includer {
 public:
  explicit FolderIncluder(std::vector<std::string> folders) : folders_(std::move(folders)) {}

  IncludeResult* includeLocal(const char* header, const char* includer, std::size_t) override {
    const std::string from = includer == nullptr ? "" : includer;
    const std::size_t slash = from.rfind('/');
    if (slash != std::string::npos) {
      if (IncludeResult* result = open(from.substr(0, slash) + "/" + header)) return result;
    }
    return includeSystem(header, includer, 0);
  }

  IncludeResult* includeSystem(const char* header, const char*, std::size_t) override {
    for (const std::string& folder : folders_) {
      if (IncludeResult* result = open(folder + "/" + header)) return result;
    }
    return nullptr;
  }

  void releaseInclude(IncludeResult* result) override {
    if (result == nullptr) return;
    delete static_cast<std::string*>(result->userData);
    delete result;
  }

 private:
  static IncludeResult* open(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return nullptr;
    auto* text = new std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    return new IncludeResult(path, text->data(), text->size(), text);
  }

  std::vector<std::string> folders_;
};

// Returns (SPIR-V or empty, log of errors and warnings).
std::pair<std::string, std::string> compile(const std::string& source, const std::string& name,
                                            const std::vector<std::string>& folders,
                                            const std::map<std::string, std::string>& defines) {
  static std::once_flag initialized;
  std::call_once(initialized, [] { glslang::InitializeProcess(); });
  std::string preamble;
  for (const auto& [key, value] : defines) preamble += "#define " + key + " " + value + "\n";
  glslang::TShader shader(EShLangCompute);
  const char* text = source.c_str();
  const int length = static_cast<int>(source.size());
  const char* file = name.c_str();
  shader.setStringsWithLengthsAndNames(&text, &length, &file, 1);
  shader.setPreamble(preamble.c_str());
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 100);
  shader.setEnvClient(glslang::EShClientVulkan, glslang::EShTargetVulkan_1_2);
  shader.setEnvTarget(glslang::EShTargetSpv, glslang::EShTargetSpv_1_5);
  FolderIncluder includer(folders);
  const auto rules = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);
  if (!shader.parse(GetDefaultResources(), 450, false, rules, includer)) return {"", shader.getInfoLog()};
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(rules)) return {"", program.getInfoLog()};
  std::vector<unsigned> words;
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), words);
  return {std::string(reinterpret_cast<const char*>(words.data()), 4 * words.size()), shader.getInfoLog()};
}

}  // namespace

PYBIND11_MODULE(_glslang, m) {
  m.doc() = "glslang in process; see graphopt.pyglslang.";
  m.def("version", [] {
    const glslang::Version v = glslang::GetVersion();
    return std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
  });
  m.def(
      "compile",
      [](const std::string& source, const std::string& name, const std::vector<std::string>& folders,
         const std::map<std::string, std::string>& defines) {
        std::pair<std::string, std::string> result;
        {
          py::gil_scoped_release unlocked;
          static std::mutex mutex;
          std::lock_guard<std::mutex> lock(mutex);
          result = compile(source, name, folders, defines);
        }
        return py::make_tuple(py::bytes(result.first), result.second);
      },
      py::arg("source"), py::arg("name"), py::arg("folders"), py::arg("defines"));
}
