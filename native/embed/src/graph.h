// A graph and its files.
#pragma once

#include <unordered_map>

#include "types.h"

namespace graphopt::embed {

struct VertexSet {
  const VertexType* type = nullptr;
  std::vector<std::int64_t> ids;
  std::vector<double> estimate;  // (n, storage_dim)
  std::vector<char> fixed;
};

struct ParameterSet {
  const ParameterType* type = nullptr;
  std::vector<std::int64_t> ids;
  std::vector<double> values;
};

// Edges of one type with one robust kernel.
struct EdgeSet {
  const EdgeType* type = nullptr;
  int kernel = 0;
  std::vector<std::int64_t> vertices, parameters;  // (m, arity), (m, num_parameters) ids
  std::vector<double> measurement, information;    // (m, measurement_dim), (m, upper triangle by rows)
  std::vector<double> kernel_width;
  std::int64_t size() const { return static_cast<std::int64_t>(kernel_width.size()); }
};

struct Place {
  int set = 0;
  std::int64_t row = 0;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<const Types> known) : types(std::move(known)) {}

  void add_vertices(const VertexType& type, const std::int64_t* ids, const double* estimates,
                    std::int64_t count);
  void add_parameters(const ParameterType& type, const std::int64_t* ids, const double* values,
                      std::int64_t count);
  // information: upper triangles, row by row
  void add_edges(const EdgeType& type, const std::int64_t* vertices, const std::int64_t* parameters,
                 const double* measurements, const double* information, int kernel,
                 const double* kernel_width, std::int64_t count);
  void set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed);

  Place vertex(std::int64_t id) const;
  Place parameter(std::int64_t id) const;

  std::shared_ptr<const Types> types;
  std::vector<VertexSet> vertex_sets;
  std::vector<ParameterSet> parameter_sets;
  std::vector<EdgeSet> edge_sets;

 private:
  void check_ends(const EdgeType& type, const std::int64_t* vertices, const std::int64_t* parameters) const;
  std::unordered_map<std::int64_t, Place> vertex_places_, parameter_places_;
};

// Reads a .g2o text or a graph.txt into a copy of the graph.
void read_graph(Graph& graph, const std::string& text, const std::string& name);
std::string write_graph(const Graph& graph);

}  // namespace graphopt::embed
