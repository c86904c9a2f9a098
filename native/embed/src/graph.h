// A graph and its files.
#pragma once

#include <unordered_map>

#include "types.h"

namespace graphopt::embed {

struct VertexSet {
  const VertexType* type = nullptr;
  std::vector<std::int64_t> ids;
  std::vector<double> estimate;  // (n, storage_dim)
  std::vector<char> fixed, marginalized;
  std::vector<std::int64_t> sequence;  // ascending in the order in which all vertices were added
};

struct ParameterSet {
  const ParameterType* type = nullptr;
  std::vector<std::int64_t> ids;
  std::vector<double> values;
};

// What the edges of a set share.
struct EdgeKind {
  const EdgeType* type = nullptr;
  int kernel = 0;  // number of the robust kernel
  int level = 0;
  bool operator==(const EdgeKind& other) const {
    return type == other.type && kernel == other.kernel && level == other.level;
  }
};

// Rows of edges, of a set or to be added to one.
struct EdgeRows {
  std::vector<std::int64_t> vertices, parameters;  // (m, arity), (m, num_parameters) ids
  std::vector<double> measurement, information;    // (m, measurement_dim), (m, upper triangle by rows)
  std::vector<double> kernel_width;                // (m)
  std::int64_t size() const { return static_cast<std::int64_t>(kernel_width.size()); }
};

struct EdgeSet : EdgeRows {
  EdgeKind kind;
};

struct Place {
  int set = 0;
  std::int64_t row = 0;
};

// A Vulkan device that stays open with the graph (device_edges.cpp).
struct OpenDevice {
  virtual ~OpenDevice() = default;
  std::string asked;
  bool validation = false;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<const Types> known) : types(std::move(known)) {}

  // estimates null: the type's identity. sequence null: after all others, in this order.
  void add_vertices(const VertexType& type, const std::int64_t* ids, const double* estimates,
                    std::int64_t count, const std::int64_t* sequence = nullptr);
  void add_parameters(const ParameterType& type, const std::int64_t* ids, const double* values,
                      std::int64_t count);
  void add_edges(const EdgeKind& kind, const EdgeRows& rows);
  void set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed);
  void set_marginalized(const std::int64_t* ids, std::int64_t count, bool marginalized);

  Place vertex(std::int64_t id) const;
  Place parameter(std::int64_t id) const;

  std::shared_ptr<const Types> types;
  std::vector<VertexSet> vertex_sets;
  std::vector<ParameterSet> parameter_sets;
  std::vector<EdgeSet> edge_sets;
  std::shared_ptr<OpenDevice> device;  // or null

 private:
  void check_ends(const EdgeType& type, const std::int64_t* vertices, const std::int64_t* parameters) const;
  void set_flag(std::vector<char> VertexSet::*flag, const std::int64_t* ids, std::int64_t count, bool value);
  std::unordered_map<std::int64_t, Place> vertex_places_, parameter_places_;
  std::int64_t next_sequence_ = 0;
};

struct ReadRules {
  std::string dialect;        // of a .g2o text: "g2o", "g2opy", or "": what its comment says, or what fits
  bool skip_unknown = false;  // leave out lines of unknown tags instead of refusing them
};

// Reads a graph.txt of `graphopt export`, a BAL text or a .g2o text into a copy of the graph. Returns how
// many lines were left out.
std::int64_t read_graph(Graph& graph, const std::string& text, const std::string& name,
                        const ReadRules& rules);
std::int64_t read_g2o(Graph& graph, const std::string& text, const std::string& name, const ReadRules& rules);
void read_bal(Graph& graph, const std::string& text, const std::string& name);

// Text of a file of this name: .g2o, else a graph.txt.
std::string write_graph(const Graph& graph, const std::string& name);
std::string write_g2o(const Graph& graph);

}  // namespace graphopt::embed
