// Vertex, edge and parameter types and robust kernels, as `graphopt export` writes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vm/program.h"

namespace graphopt::embed {

using ProgramPtr = std::shared_ptr<const vm::Program>;

enum class Dialect { kAny, kPython, kCpp };  // of .g2o lines

// How a line of a .g2o file holds the numbers of a type.
struct Layout {
  std::string tag;
  Dialect dialect = Dialect::kAny;
  int num_tokens = 0;
  ProgramPtr decode;  // tokens -> stored numbers; of edges the measurement, then Omega's upper triangle
  ProgramPtr encode;  // and back; null where a line like this is not written
};

// What every type has.
struct Type {
  std::string tag;                 // of edges of any arity "TAG/arity"
  std::vector<std::string> names;  // in files, which have no arity; the first one is written
  bool looks_alike = false;        // lines of one length mean different things in the dialects
  std::vector<Layout> layouts;     // those written best first
};

struct VertexType : Type {
  int storage_dim = 0, tangent_dim = 0;
  bool is_pose = false;
  std::vector<double> identity;
  int working_dim = 0;        // of the numbers that are optimized: storage_dim if there are no programs
  ProgramPtr encode, decode;  // storage -> these numbers, and back; or null
  ProgramPtr oplus;           // of these numbers
};

struct ParameterType : Type {
  int storage_dim = 0;
};

struct EdgeType : Type {
  std::vector<const VertexType*> vertices;
  std::vector<const ParameterType*> parameters;
  int measurement_dim = 0, residual_dim = 0;
  ProgramPtr chi2, linearize;                 // with a robust kernel
  std::string chi2_kernel, linearize_kernel;  // files of SPIR-V, or ""

  int information_dim() const { return residual_dim * (residual_dim + 1) / 2; }
};

struct RobustKernel {
  std::string name;
  ProgramPtr program;
};

template <class T>
using TypeList = std::vector<std::unique_ptr<T>>;

class Types {
 public:
  // Throws Error with `name`:line.
  Types(const std::string& text, const std::string& name);

  // By tag or another name; throw Error where there is none.
  const VertexType& vertex(const std::string& name) const;
  const ParameterType& parameter(const std::string& name) const;
  const EdgeType& edge(const std::string& name) const;
  int kernel(const char* name) const;  // null: 0, no robust kernel

  // Content of a file beside types.txt.
  std::string file(const std::string& name) const;

  const std::vector<RobustKernel>& kernels() const { return kernels_; }
  const TypeList<VertexType>& vertices() const { return vertices_; }
  const TypeList<ParameterType>& parameters() const { return parameters_; }
  const TypeList<EdgeType>& edges() const { return edges_; }

 private:
  TypeList<VertexType> vertices_;
  TypeList<ParameterType> parameters_;
  TypeList<EdgeType> edges_;
  std::vector<RobustKernel> kernels_;
  std::string folder_;  // with a / behind it, or ""
};

// The types that the library carries (builtin_types.txt), read once.
std::shared_ptr<const Types> builtin_types();

}  // namespace graphopt::embed
