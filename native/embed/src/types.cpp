#include "types.h"

#include <algorithm>

#include "files.h"
#include "words.h"

namespace graphopt::embed {
namespace {

constexpr int kMostRegisters = 65536, kMostWords = 1 << 24, kMostTokens = 1 << 16;

// A program of that many inputs and outputs; only those of edges have a place for a robust kernel.
ProgramPtr read_program(Words& words, const char* name, int num_inputs, int num_outputs,
                        bool may_be_robust = false) {
  words.expect(name);
  const int num_registers = words.count("a number of registers", kMostRegisters);
  std::vector<double> constants(
      static_cast<std::size_t>(words.count("a number of constants", kMostRegisters)));
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(words.count("a number of inputs", kMostWords)));
  std::vector<std::int32_t> outputs(static_cast<std::size_t>(words.count("a number of outputs", kMostWords)));
  std::vector<std::uint16_t> code(static_cast<std::size_t>(words.count("a number of words", kMostWords)));
  for (double& constant : constants) constant = words.bits("a constant");
  for (std::int32_t& r : inputs) r = static_cast<std::int32_t>(words.integer("a register", -1, 65535));
  for (std::int32_t& r : outputs) r = static_cast<std::int32_t>(words.integer("a register", 0, 65535));
  for (std::uint16_t& one : code) one = static_cast<std::uint16_t>(words.integer("a word", 0, 65535));
  std::shared_ptr<const vm::Program> program;
  try {
    program = std::make_shared<const vm::Program>(code, constants, inputs, outputs, num_registers);
  } catch (const std::invalid_argument& error) {
    words.fail(error.what());
  }
  if (program->num_inputs() != num_inputs || program->num_outputs() != num_outputs)
    words.fail("a program takes " + std::to_string(program->num_inputs()) + " numbers and returns " +
               std::to_string(program->num_outputs()) + ", expected " + std::to_string(num_inputs) + " and " +
               std::to_string(num_outputs));
  if (program->uses_robust && !may_be_robust) words.fail("this program may not have a robust kernel inside");
  return program;
}

Dialect read_dialect(Words& words) {
  const std::string name = words.word("a dialect");
  if (name == "any") return Dialect::kAny;
  if (name == "g2opy") return Dialect::kPython;
  if (name == "g2o") return Dialect::kCpp;
  words.fail("expected the dialect any, g2opy or g2o, got '" + name + "'");
}

void read_names(Words& words, Type& type, int num_stored) {
  words.expect("names");
  for (int k = words.count("a number of names", 1000); k > 0; --k) type.names.push_back(words.word("a name"));
  if (type.names.empty()) words.fail("expected at least one name");
  type.looks_alike = words.count("0 or 1", 1) == 1;
  words.expect("layouts");
  for (int k = words.count("a number of layouts", 1000); k > 0; --k) {
    words.expect("layout");
    Layout layout;
    layout.tag = words.word("a tag");
    layout.dialect = read_dialect(words);
    layout.num_tokens = words.count("a number of tokens", kMostTokens);
    const bool is_written = words.count("0 or 1", 1) == 1;
    layout.decode = read_program(words, "decode", layout.num_tokens, num_stored);
    const bool has_encode = words.next_is("encode");
    if (has_encode) layout.encode = read_program(words, "encode", num_stored, layout.num_tokens);
    if (!is_written) layout.encode = nullptr;
    type.layouts.push_back(std::move(layout));
  }
}

void read_vertex(Words& words, VertexType& type) {
  type.storage_dim = words.count("a storage dimension", kMostTokens);
  type.tangent_dim = words.count("a tangent dimension", kMostTokens);
  if (type.storage_dim < 1 || type.tangent_dim < 1) words.fail("expected dimensions of at least 1");
  type.is_pose = words.count("0 or 1", 1) == 1;
  for (int k = 0; k < type.storage_dim; ++k) type.identity.push_back(words.bits("a number of the identity"));
  read_names(words, type, type.storage_dim);
  words.expect("working");
  type.working_dim = words.count("a dimension of the working form", kMostTokens);
  if (type.working_dim > 0) {
    type.encode = read_program(words, "encode", type.storage_dim, type.working_dim);
    type.decode = read_program(words, "decode", type.working_dim, type.storage_dim);
  } else {
    type.working_dim = type.storage_dim;
  }
  type.oplus = read_program(words, "oplus", type.working_dim + type.tangent_dim, type.working_dim);
}

void read_edge(Words& words, const Types& types, EdgeType& type) {
  type.measurement_dim = words.count("a measurement dimension", kMostTokens);
  type.residual_dim = words.count("a residual dimension", 4096);
  if (type.residual_dim < 1) words.fail("expected a residual dimension of at least 1");
  const int num_data = type.measurement_dim + type.information_dim();
  int num_inputs = num_data, num_sums = 0, tangents = 0;
  const int arity = words.count("a number of vertices", 1000);
  if (arity < 1) words.fail("expected at least one vertex");
  for (int k = 0; k < arity; ++k) {
    type.vertices.push_back(&types.vertex(words.word("a vertex type")));
    num_inputs += type.vertices.back()->working_dim;
    const int dim = type.vertices.back()->tangent_dim;
    num_sums += dim * (dim + 1) / 2 + tangents * dim + dim;
    tangents += dim;
  }
  for (int k = words.count("a number of parameters", 1000); k > 0; --k) {
    type.parameters.push_back(&types.parameter(words.word("a parameter type")));
    num_inputs += type.parameters.back()->storage_dim;
  }
  read_names(words, type, num_data);
  type.chi2 = read_program(words, "chi2", num_inputs, 2 + type.residual_dim, true);
  type.linearize = read_program(words, "linearize", num_inputs, 1 + num_sums, true);
  words.expect("spirv");
  const int num_files = words.count("a number of files", 2);
  if (num_files == 1) words.fail("expected 0 or 2 files");
  if (num_files == 2) {
    type.chi2_kernel = words.word("a file");
    type.linearize_kernel = words.word("a file");
  }
}

template <class T>
const T& find(const TypeList<T>& types, const std::string& name, const char* kind) {
  for (const auto& type : types)
    if (type->tag == name) return *type;
  for (const auto& type : types)
    if (std::find(type->names.begin(), type->names.end(), name) != type->names.end()) return *type;
  std::string known;
  for (const auto& type : types) known += (known.empty() ? "" : ", ") + type->tag;
  throw Error(GRAPHOPT_UNKNOWN_TYPE, std::string("There is no ") + kind + " type '" + name +
                                         "'. Known: " + (known.empty() ? "none" : known) +
                                         ". `graphopt export` writes files of other types.");
}

template <class T>
T& add(Words& words, TypeList<T>& types, const std::string& tag) {
  for (const auto& type : types)
    if (type->tag == tag) words.fail("the type '" + tag + "' is there twice");
  types.push_back(std::make_unique<T>());
  types.back()->tag = tag;
  return *types.back();
}

}  // namespace

Types::Types(const std::string& text, const std::string& name) {
  folder_ = name.substr(0, name.rfind('/') + 1);
  Words words(text, name);
  for (const char* one : {"graphopt", "types", "2"}) words.expect(one);
  while (!words.at_end()) {
    const std::string kind = words.word("vertex, parameter, edge or kernel");
    const std::string tag = words.word("a tag");
    if (kind == "vertex") {
      read_vertex(words, add(words, vertices_, tag));
    } else if (kind == "parameter") {
      ParameterType& type = add(words, parameters_, tag);
      type.storage_dim = words.count("a storage dimension", kMostTokens);
      read_names(words, type, type.storage_dim);
    } else if (kind == "edge") {
      read_edge(words, *this, add(words, edges_, tag));
    } else if (kind == "kernel") {
      kernels_.push_back({tag, read_program(words, "weight", 2, 2)});
    } else {
      words.fail("expected vertex, parameter, edge or kernel, got '" + kind + "'");
    }
  }
  if (kernels_.empty()) words.fail("expected at least the robust kernel None");
}

const VertexType& Types::vertex(const std::string& name) const { return find(vertices_, name, "vertex"); }
const ParameterType& Types::parameter(const std::string& name) const {
  return find(parameters_, name, "parameter");
}
const EdgeType& Types::edge(const std::string& name) const { return find(edges_, name, "edge"); }

int Types::kernel(const char* name) const {
  if (name == nullptr) return 0;
  std::string known;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    if (kernels_[k].name == name) return static_cast<int>(k);
    known += (known.empty() ? "" : ", ") + kernels_[k].name;
  }
  throw Error(GRAPHOPT_UNKNOWN_TYPE,
              "There is no robust kernel '" + std::string(name) + "'. Known: " + known + ".");
}

std::string Types::file(const std::string& name) const {
  if (name.find('/') != std::string::npos)
    throw Error(GRAPHOPT_FORMAT_ERROR,
                "types.txt names the file '" + name + "', expected one in its own folder.");
  return read_file(folder_ + name);
}

}  // namespace graphopt::embed
