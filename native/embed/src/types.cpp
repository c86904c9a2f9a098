#include "types.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "words.h"

namespace graphopt::embed {
namespace {

ProgramPtr read_program(Words& words, const char* name) {
  words.expect(name);
  const int num_registers = words.count("a number of registers");
  std::vector<double> constants(static_cast<std::size_t>(words.count("a number of constants")));
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(words.count("a number of inputs")));
  std::vector<std::int32_t> outputs(static_cast<std::size_t>(words.count("a number of outputs")));
  std::vector<std::uint16_t> code(static_cast<std::size_t>(words.count("a number of words")));
  for (double& constant : constants) constant = words.bits("a constant");
  for (std::int32_t& r : inputs) r = static_cast<std::int32_t>(words.integer("a register", -1, 65535));
  for (std::int32_t& r : outputs) r = static_cast<std::int32_t>(words.integer("a register", 0, 65535));
  for (std::uint16_t& one : code) one = static_cast<std::uint16_t>(words.integer("a word", 0, 65535));
  try {
    return std::make_shared<const vm::Program>(code, constants, inputs, outputs, num_registers);
  } catch (const std::invalid_argument& error) {
    words.fail(error.what());
  }
}

Layout read_layout(Words& words, int num_entries) {
  Layout layout;
  layout.num_tokens = words.count("a number of tokens");
  for (int k = 0; k < num_entries; ++k) {
    Entry entry;
    const std::string kind = words.word("copy, normalized or constant");
    if (kind == "constant") {
      entry.kind = Entry::kConstant;
      entry.value = words.bits("a constant");
    } else if (kind == "copy" || kind == "normalized") {
      entry.kind = kind == "copy" ? Entry::kCopy : Entry::kNormalized;
      entry.token = words.count("a token", layout.num_tokens - 1);
      if (entry.kind == Entry::kNormalized) entry.quaternion = words.count("a token", layout.num_tokens - 4);
    } else {
      words.fail("expected copy, normalized or constant, got '" + kind + "'");
    }
    layout.entries.push_back(entry);
  }
  return layout;
}

std::vector<Layout> read_layouts(Words& words, int num_entries) {
  words.expect("layouts");
  std::vector<Layout> layouts;
  for (int k = words.count("a number of layouts", 100); k > 0; --k)
    layouts.push_back(read_layout(words, num_entries));
  return layouts;
}

template <class Type>
const Type& find(const std::vector<std::unique_ptr<Type>>& types, const std::string& tag, const char* kind) {
  std::string known;
  for (const auto& type : types) {
    if (type->tag == tag) return *type;
    known += (known.empty() ? "" : ", ") + type->tag;
  }
  throw Error(GRAPHOPT_UNKNOWN_TYPE, std::string("There is no ") + kind + " type '" + tag +
                                         "'. Known: " + (known.empty() ? "none" : known) + ".");
}

void check_program(const Words& words, const ProgramPtr& program, int num_inputs, int num_outputs) {
  if (program->num_inputs() != num_inputs || program->num_outputs() != num_outputs)
    words.fail("a program takes " + std::to_string(program->num_inputs()) + " numbers and returns " +
               std::to_string(program->num_outputs()) + ", expected " + std::to_string(num_inputs) + " and " +
               std::to_string(num_outputs));
}

}  // namespace

void Layout::decode(const double* tokens, double* numbers) const {
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const Entry& entry = entries[k];
    numbers[k] = entry.kind == Entry::kConstant ? entry.value : tokens[entry.token];
    if (entry.kind != Entry::kNormalized) continue;
    const double* q = tokens + entry.quaternion;
    numbers[k] /= std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  }
}

Types::Types(const std::string& text, const std::string& name) {
  Words words(text, name);
  for (const char* one : {"graphopt", "types", "1"}) words.expect(one);
  while (!words.at_end()) {
    const std::string kind = words.word("vertex, parameter, edge or kernel");
    const std::string tag = words.word("a tag");
    if (kind == "vertex") {
      auto type = std::make_unique<VertexType>();
      type->tag = tag;
      type->storage_dim = words.count("a storage dimension");
      type->tangent_dim = words.count("a tangent dimension");
      for (int k = 0; k < type->storage_dim; ++k) type->identity.push_back(words.bits("a number"));
      type->layouts = read_layouts(words, type->storage_dim);
      type->oplus = read_program(words, "oplus");
      check_program(words, type->oplus, type->storage_dim + type->tangent_dim, type->storage_dim);
      vertices_.push_back(std::move(type));
    } else if (kind == "parameter") {
      auto type = std::make_unique<ParameterType>();
      type->tag = tag;
      type->storage_dim = words.count("a storage dimension");
      type->layouts = read_layouts(words, type->storage_dim);
      parameters_.push_back(std::move(type));
    } else if (kind == "edge") {
      auto type = std::make_unique<EdgeType>();
      type->tag = tag;
      type->measurement_dim = words.count("a measurement dimension");
      type->residual_dim = words.count("a residual dimension");
      int num_inputs = type->measurement_dim + type->information_dim(), num_sums = 0, tangents = 0;
      for (int k = words.count("a number of vertices"); k > 0; --k) {
        type->vertices.push_back(&vertex(words.word("a vertex type")));
        num_inputs += type->vertices.back()->storage_dim;
        const int dim = type->vertices.back()->tangent_dim;
        num_sums += dim * (dim + 1) / 2 + tangents * dim + dim;
        tangents += dim;
      }
      for (int k = words.count("a number of parameters"); k > 0; --k) {
        type->parameters.push_back(&parameter(words.word("a parameter type")));
        num_inputs += type->parameters.back()->storage_dim;
      }
      type->layouts = read_layouts(words, type->measurement_dim + type->information_dim());
      type->chi2 = read_program(words, "chi2");
      check_program(words, type->chi2, num_inputs, 2 + type->residual_dim);
      type->linearize = read_program(words, "linearize");
      check_program(words, type->linearize, num_inputs, 1 + num_sums);
      edges_.push_back(std::move(type));
    } else if (kind == "kernel") {
      kernels_.push_back({tag, read_program(words, "weight")});
      check_program(words, kernels_.back().program, 2, 2);
    } else {
      words.fail("expected vertex, parameter, edge or kernel, got '" + kind + "'");
    }
  }
  if (kernels_.empty()) words.fail("expected at least the robust kernel None");
}

const VertexType& Types::vertex(const std::string& tag) const { return find(vertices_, tag, "vertex"); }
const ParameterType& Types::parameter(const std::string& tag) const {
  return find(parameters_, tag, "parameter");
}
const EdgeType& Types::edge(const std::string& tag) const { return find(edges_, tag, "edge"); }

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

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad()) throw Error(GRAPHOPT_FILE_ERROR, path + ": the file cannot be read.");
  return text.str();
}

}  // namespace graphopt::embed
