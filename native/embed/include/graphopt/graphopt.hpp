// graphopt.h for C++: a graph that frees itself, vectors for arrays, exceptions for statuses.
//
//   graphopt::Graph graph;                                       // or graphopt::Graph("DIR/types.txt")
//   graph.read("sphere.g2o");
//   const graphopt_summary summary = graph.optimize();
//   const std::vector<double> poses = graph.estimates("VERTEX_SE3:QUAT");
#ifndef GRAPHOPT_GRAPHOPT_HPP
#define GRAPHOPT_GRAPHOPT_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "graphopt/graphopt.h"

namespace graphopt {

class Error : public std::runtime_error {
 public:
  explicit Error(graphopt_status what_status)
      : std::runtime_error(graphopt_last_error()), status(what_status) {}
  const graphopt_status status;
};

inline void check(graphopt_status status) {
  if (status != GRAPHOPT_OK) throw Error(status);
}

inline graphopt_options default_options() {
  graphopt_options options;
  graphopt_default_options(&options);
  return options;
}

// Edges to add; what is empty is left out as in graphopt_add_edges.
struct Edges {
  std::vector<std::int64_t> vertices, parameters;
  std::vector<double> measurements, information;
  std::string kernel;
  double kernel_width = 1.0;
  int level = 0;
};

// Throws Error; a failed call changes nothing. get() is the graph for graphopt.h's functions.
class Graph {
 public:
  explicit Graph(const std::string& types = "") {
    graphopt_graph* graph = nullptr;
    check(graphopt_graph_new(types.empty() ? nullptr : types.c_str(), &graph));
    graph_.reset(graph);
  }

  graphopt_graph* get() const { return graph_.get(); }

  void read(const std::string& path) { check(graphopt_graph_read(get(), path.c_str())); }
  void write(const std::string& path) const { check(graphopt_graph_write(get(), path.c_str())); }

  // estimates (n, storage_dim), or empty: the type's identity
  void add_vertices(const std::string& type, const std::vector<std::int64_t>& ids,
                    const std::vector<double>& estimates = {}) {
    require(estimates.empty() || estimates.size() == ids.size() * static_cast<std::size_t>(storage_dim(type)),
            "estimates");
    check(graphopt_add_vertices(get(), type.c_str(), ids.data(), pointer(estimates), size(ids)));
  }
  // Sizes of the arrays as in graphopt_add_edges, for `count` edges.
  void add_edges(const std::string& type, const Edges& edges, std::int64_t count) {
    check(graphopt_add_edges(get(), type.c_str(), pointer(edges.vertices), pointer(edges.parameters),
                             pointer(edges.measurements), pointer(edges.information),
                             edges.kernel.empty() ? nullptr : edges.kernel.c_str(), edges.kernel_width,
                             edges.level, count));
  }
  void set_fixed(const std::vector<std::int64_t>& ids, bool fixed = true) {
    check(graphopt_set_fixed(get(), ids.data(), size(ids), fixed ? 1 : 0));
  }
  void set_marginalized(const std::vector<std::int64_t>& ids, bool marginalized = true) {
    check(graphopt_set_marginalized(get(), ids.data(), size(ids), marginalized ? 1 : 0));
  }

  graphopt_summary optimize(const graphopt_options& options = default_options()) {
    graphopt_summary summary;
    check(graphopt_optimize(get(), &options, &summary));
    return summary;
  }
  double chi2(int level = 0) const {
    double value = 0.0;
    check(graphopt_chi2(get(), level, &value));
    return value;
  }

  std::int64_t num_vertices(const std::string& type) const {
    std::int64_t count = 0;
    check(graphopt_count_vertices(get(), type.c_str(), &count));
    return count;
  }
  int storage_dim(const std::string& type) const {
    int dim = 0;
    check(graphopt_storage_dim(get(), type.c_str(), &dim));
    return dim;
  }
  // (n, storage_dim), in the order in which they were added
  std::vector<double> estimates(const std::string& type) const {
    const std::int64_t count = num_vertices(type);
    std::vector<double> result(static_cast<std::size_t>(count * storage_dim(type)));
    check(graphopt_get_estimates(get(), type.c_str(), nullptr, result.data(), count));
    return result;
  }
  void set_estimates(const std::string& type, const std::vector<double>& estimates) {
    const std::int64_t count = num_vertices(type);
    require(size(estimates) == count * storage_dim(type), "estimates");
    check(graphopt_set_estimates(get(), type.c_str(), estimates.data(), count));
  }

 private:
  struct Free {
    void operator()(graphopt_graph* graph) const { graphopt_graph_free(graph); }
  };
  template <class T>
  static const T* pointer(const std::vector<T>& values) {
    return values.empty() ? nullptr : values.data();
  }
  template <class T>
  static std::int64_t size(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size());
  }
  static void require(bool condition, const char* name) {
    if (!condition) throw std::invalid_argument(std::string(name) + " has the wrong length");
  }

  std::unique_ptr<graphopt_graph, Free> graph_;
};

}  // namespace graphopt

#endif
