// Vertex, edge and parameter types and robust kernels, as `graphopt export` writes them.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm/program.h"

namespace graphopt::embed {

using ProgramPtr = std::shared_ptr<const vm::Program>;

// How the numbers of a .g2o line become stored ones.
struct Entry {
  enum Kind { kCopy, kNormalized, kConstant } kind = kCopy;
  int token = 0;       // of kCopy and kNormalized
  int quaternion = 0;  // first of four tokens whose norm divides
  double value = 0.0;  // of kConstant
};

struct Layout {
  int num_tokens = 0;
  std::vector<Entry>
      entries;  // stored numbers; of edges the measurement, then the information's upper triangle

  void decode(const double* tokens, double* numbers) const;
};

struct VertexType {
  std::string tag;
  int storage_dim = 0, tangent_dim = 0;
  std::vector<double> identity;
  std::vector<Layout> layouts;  // empty: cannot stand in a .g2o file
  ProgramPtr oplus;
};

struct ParameterType {
  std::string tag;
  int storage_dim = 0;
  std::vector<Layout> layouts;
};

struct EdgeType {
  std::string tag;
  std::vector<const VertexType*> vertices;
  std::vector<const ParameterType*> parameters;
  int measurement_dim = 0, residual_dim = 0;
  std::vector<Layout> layouts;
  ProgramPtr chi2, linearize;  // with a robust kernel

  int information_dim() const { return residual_dim * (residual_dim + 1) / 2; }
};

struct RobustKernel {
  std::string name;
  ProgramPtr program;
};

class Types {
 public:
  // Throws Error with `name`:line.
  Types(const std::string& text, const std::string& name);

  const VertexType& vertex(const std::string& tag) const;
  const ParameterType& parameter(const std::string& tag) const;
  const EdgeType& edge(const std::string& tag) const;
  int kernel(const char* name) const;  // null: 0, no robust kernel
  const std::vector<RobustKernel>& kernels() const { return kernels_; }
  const std::vector<std::unique_ptr<VertexType>>& vertices() const { return vertices_; }
  const std::vector<std::unique_ptr<ParameterType>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<EdgeType>>& edges() const { return edges_; }

 private:
  std::vector<std::unique_ptr<VertexType>> vertices_;
  std::vector<std::unique_ptr<ParameterType>> parameters_;
  std::vector<std::unique_ptr<EdgeType>> edges_;
  std::vector<RobustKernel> kernels_;
};

// The types that the library carries (builtin_types.txt).
const std::string& builtin_types_text();

// The whole file; Error where it cannot be read.
std::string read_file(const std::string& path);

}  // namespace graphopt::embed
