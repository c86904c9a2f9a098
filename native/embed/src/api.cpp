// The C functions: arguments are checked, exceptions become a status and a sentence.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>

#include "error.h"
#include "files.h"
#include "graph.h"
#include "parallel/thread_pool.h"
#include "problem.h"
#ifdef GRAPHOPT_HAS_VULKAN
#include "vulkan/error.h"
#endif

using namespace graphopt;
using namespace graphopt::embed;

struct graphopt_graph {
  Graph graph;
};

namespace {

thread_local std::string last_error;

template <class Call>
graphopt_status guarded(Call call) {
  graphopt_status status = GRAPHOPT_INTERNAL_ERROR;
  try {
    call();
    return GRAPHOPT_OK;
  } catch (const Error& error) {
    status = error.status;
    last_error = error.what();
  } catch (const std::bad_alloc&) {
    status = GRAPHOPT_OUT_OF_MEMORY;
    last_error = "Out of memory.";
  } catch (const std::exception& error) {
    last_error = error.what();
#ifdef GRAPHOPT_HAS_VULKAN
    if (dynamic_cast<const vulkan::DeviceError*>(&error) != nullptr) status = GRAPHOPT_DEVICE_ERROR;
#endif
  }
  return status;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(GRAPHOPT_INVALID_ARGUMENT, what);
}

void require_arrays(const char* name, std::int64_t count, std::initializer_list<const void*> arrays) {
  require(count >= 0, std::string(name) + ": count is " + std::to_string(count) + ", expected 0 or more.");
  for (const void* array : arrays)
    require(array != nullptr || count == 0,
            std::string(name) + ": an array is NULL, expected " + std::to_string(count) + " rows.");
}

void require_finite(const char* name, const double* values, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k)
    require(std::isfinite(values[k]),
            std::string(name) + ": number " + std::to_string(k) + " is not finite.");
}

void require_choice(const char* name, int value, int last) {
  require(value >= 0 && value <= last, std::string(name) + " is " + std::to_string(value) +
                                           ", expected 0 to " + std::to_string(last) + ".");
}

// The estimates of a type; null where the graph has no vertex of it.
const VertexSet* set_of(const Graph& graph, const char* type) {
  const VertexType& known = graph.types->vertex(type);
  for (const VertexSet& set : graph.vertex_sets)
    if (set.type == &known) return &set;
  return nullptr;
}

constexpr double kSymmetryTolerance = 1e-9;  // of the largest entry, as in graphopt/graph/validate.py

// Upper triangles, row by row; null: the identity.
std::vector<double> upper_triangles(const double* information, int dim, std::int64_t count) {
  std::vector<double> result;
  for (std::int64_t k = 0; k < count; ++k) {
    const double* matrix = information == nullptr ? nullptr : information + k * dim * dim;
    double largest = 0.0, difference = 0.0;
    for (int i = 0; i < dim; ++i)
      for (int j = i; j < dim; ++j) {
        if (matrix == nullptr) {
          result.push_back(i == j ? 1.0 : 0.0);
          continue;
        }
        const double upper = matrix[i * dim + j], lower = matrix[j * dim + i];
        largest = std::max({largest, std::fabs(upper), std::fabs(lower)});
        difference = std::max(difference, std::fabs(upper - lower));
        result.push_back(upper);
      }
    if (difference <= kSymmetryTolerance * largest) continue;
    char text[160];
    std::snprintf(text, sizeof text,
                  "information of edge %lld is not symmetric (largest difference %.3g). "
                  "Pass (Omega + Omega') / 2 if that is what you mean.",
                  static_cast<long long>(k), difference);
    throw Error(GRAPHOPT_INVALID_ARGUMENT, text);
  }
  return result;
}

}  // namespace

const char* graphopt_version(void) { return GRAPHOPT_VERSION; }
const char* graphopt_last_error(void) { return last_error.c_str(); }
int graphopt_num_threads(void) { return ThreadPool::instance().num_threads(); }

graphopt_status graphopt_set_num_threads(int count) {
  return guarded([&] {
    require(count >= 1 && count <= ThreadPool::max_threads, "num_threads is " + std::to_string(count) +
                                                                ", expected 1 to " +
                                                                std::to_string(ThreadPool::max_threads));
    ThreadPool::instance().resize(count);
  });
}

graphopt_status graphopt_graph_new(const char* types, graphopt_graph** graph) {
  return guarded([&] {
    require(graph != nullptr, "graphopt_graph_new: graph is NULL.");
    *graph = nullptr;
    auto known = types == nullptr ? builtin_types() : std::make_shared<const Types>(read_file(types), types);
    *graph = new graphopt_graph{Graph(std::move(known))};
  });
}

void graphopt_graph_free(graphopt_graph* graph) { delete graph; }

graphopt_status graphopt_graph_read(graphopt_graph* graph, const char* path) {
  return guarded([&] {
    require(graph != nullptr && path != nullptr, "graphopt_graph_read: an argument is NULL.");
    read_graph(graph->graph, read_file(path), path, {});
  });
}

graphopt_status graphopt_graph_read_as(graphopt_graph* graph, const char* path, const char* dialect,
                                       int64_t* num_unknown) {
  return guarded([&] {
    require(graph != nullptr && path != nullptr, "graphopt_graph_read_as: an argument is NULL.");
    ReadRules rules;
    rules.skip_unknown = num_unknown != nullptr;
    if (dialect != nullptr) rules.dialect = dialect;
    require(dialect == nullptr || rules.dialect == "g2o" || rules.dialect == "g2opy",
            "dialect is '" + rules.dialect + "', expected g2o, g2opy or NULL.");
    const std::int64_t unknown = read_graph(graph->graph, read_file(path), path, rules);
    if (num_unknown != nullptr) *num_unknown = unknown;
  });
}

graphopt_status graphopt_graph_write(const graphopt_graph* graph, const char* path) {
  return guarded([&] {
    require(graph != nullptr && path != nullptr, "graphopt_graph_write: an argument is NULL.");
    write_whole_file(path, write_graph(graph->graph, path));
  });
}

graphopt_status graphopt_add_vertices(graphopt_graph* graph, const char* type, const int64_t* ids,
                                      const double* estimates, int64_t count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr, "graphopt_add_vertices: an argument is NULL.");
    require_arrays("graphopt_add_vertices", count, {ids});
    const VertexType& known = graph->graph.types->vertex(type);
    if (estimates != nullptr) require_finite("estimates", estimates, count * known.storage_dim);
    graph->graph.add_vertices(known, ids, estimates, count);
  });
}

graphopt_status graphopt_add_parameters(graphopt_graph* graph, const char* type, const int64_t* ids,
                                        const double* values, int64_t count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr, "graphopt_add_parameters: an argument is NULL.");
    require_arrays("graphopt_add_parameters", count, {ids, values});
    const ParameterType& known = graph->graph.types->parameter(type);
    require_finite("values", values, count * known.storage_dim);
    graph->graph.add_parameters(known, ids, values, count);
  });
}

graphopt_status graphopt_add_edges(graphopt_graph* graph, const char* type, const int64_t* vertices,
                                   const int64_t* parameters, const double* measurements,
                                   const double* information, const char* kernel, double kernel_width,
                                   int level, int64_t count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr, "graphopt_add_edges: an argument is NULL.");
    const EdgeType& known = graph->graph.types->edge(type);
    require_arrays("graphopt_add_edges", count, {vertices});
    if (known.measurement_dim > 0) require_arrays("graphopt_add_edges", count, {measurements});
    if (!known.parameters.empty()) require_arrays("graphopt_add_edges", count, {parameters});
    require_finite("measurements", measurements, count * known.measurement_dim);
    if (information != nullptr)
      require_finite("information", information, count * known.residual_dim * known.residual_dim);
    const int number = graph->graph.types->kernel(kernel);
    require(number == 0 || (std::isfinite(kernel_width) && kernel_width > 0.0),
            "kernel_width is " + std::to_string(kernel_width) + ", expected > 0.");
    EdgeRows rows;
    rows.vertices.assign(vertices, vertices + count * static_cast<std::int64_t>(known.vertices.size()));
    if (!known.parameters.empty())
      rows.parameters.assign(parameters,
                             parameters + count * static_cast<std::int64_t>(known.parameters.size()));
    if (known.measurement_dim > 0)
      rows.measurement.assign(measurements, measurements + count * known.measurement_dim);
    rows.information = upper_triangles(information, known.residual_dim, count);
    rows.kernel_width.assign(static_cast<std::size_t>(count), number == 0 ? 1.0 : kernel_width);
    graph->graph.add_edges({&known, number, level}, rows);
  });
}

graphopt_status graphopt_set_fixed(graphopt_graph* graph, const int64_t* ids, int64_t count, int fixed) {
  return guarded([&] {
    require(graph != nullptr, "graphopt_set_fixed: graph is NULL.");
    require_arrays("graphopt_set_fixed", count, {ids});
    graph->graph.set_fixed(ids, count, fixed != 0);
  });
}

graphopt_status graphopt_set_marginalized(graphopt_graph* graph, const int64_t* ids, int64_t count,
                                          int marginalized) {
  return guarded([&] {
    require(graph != nullptr, "graphopt_set_marginalized: graph is NULL.");
    require_arrays("graphopt_set_marginalized", count, {ids});
    graph->graph.set_marginalized(ids, count, marginalized != 0);
  });
}

graphopt_status graphopt_count_vertices(const graphopt_graph* graph, const char* type, int64_t* count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr && count != nullptr,
            "graphopt_count_vertices: an argument is NULL.");
    const VertexSet* set = set_of(graph->graph, type);
    *count = set == nullptr ? 0 : static_cast<int64_t>(set->ids.size());
  });
}

graphopt_status graphopt_count_edges(const graphopt_graph* graph, const char* type, int64_t* count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr && count != nullptr,
            "graphopt_count_edges: an argument is NULL.");
    const EdgeType& known = graph->graph.types->edge(type);
    int64_t sum = 0;
    for (const EdgeSet& set : graph->graph.edge_sets) sum += set.kind.type == &known ? set.size() : 0;
    *count = sum;
  });
}

graphopt_status graphopt_storage_dim(const graphopt_graph* graph, const char* type, int* dim) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr && dim != nullptr,
            "graphopt_storage_dim: an argument is NULL.");
    *dim = graph->graph.types->vertex(type).storage_dim;
  });
}

graphopt_status graphopt_tangent_dim(const graphopt_graph* graph, const char* type, int* dim) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr && dim != nullptr,
            "graphopt_tangent_dim: an argument is NULL.");
    *dim = graph->graph.types->vertex(type).tangent_dim;
  });
}

graphopt_status graphopt_get_estimates(const graphopt_graph* graph, const char* type, int64_t* ids,
                                       double* estimates, int64_t count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr, "graphopt_get_estimates: an argument is NULL.");
    const VertexSet* set = set_of(graph->graph, type);
    const int64_t size = set == nullptr ? 0 : static_cast<int64_t>(set->ids.size());
    require(count == size, "graphopt_get_estimates: count is " + std::to_string(count) + ", the graph has " +
                               std::to_string(size) + " vertices of " + type + ".");
    require_arrays("graphopt_get_estimates", count, {estimates});
    if (set == nullptr) return;
    std::copy(set->estimate.begin(), set->estimate.end(), estimates);
    if (ids != nullptr) std::copy(set->ids.begin(), set->ids.end(), ids);
  });
}

graphopt_status graphopt_set_estimates(graphopt_graph* graph, const char* type, const double* estimates,
                                       int64_t count) {
  return guarded([&] {
    require(graph != nullptr && type != nullptr, "graphopt_set_estimates: an argument is NULL.");
    require_arrays("graphopt_set_estimates", count, {estimates});
    const VertexType& known = graph->graph.types->vertex(type);
    const VertexSet* found = set_of(graph->graph, type);
    const int64_t size = found == nullptr ? 0 : static_cast<int64_t>(found->ids.size());
    require(count == size, "graphopt_set_estimates: count is " + std::to_string(count) + ", the graph has " +
                               std::to_string(size) + " vertices of " + type + ".");
    require_finite("estimates", estimates, count * known.storage_dim);
    for (VertexSet& set : graph->graph.vertex_sets)
      if (&set == found) std::copy(estimates, estimates + count * known.storage_dim, set.estimate.begin());
  });
}

graphopt_status graphopt_set_estimate(graphopt_graph* graph, int64_t id, const double* estimate, int dim) {
  return guarded([&] {
    require(graph != nullptr && estimate != nullptr, "graphopt_set_estimate: an argument is NULL.");
    const Place place = graph->graph.vertex(id);
    VertexSet& set = graph->graph.vertex_sets[static_cast<std::size_t>(place.set)];
    require(dim == set.type->storage_dim, "graphopt_set_estimate: dim is " + std::to_string(dim) + ", " +
                                              set.type->tag + " has " +
                                              std::to_string(set.type->storage_dim) + ".");
    require_finite("estimate", estimate, dim);
    std::copy(estimate, estimate + dim, set.estimate.begin() + place.row * dim);
  });
}

graphopt_status graphopt_chi2(const graphopt_graph* graph, int level, double* chi2) {
  return guarded([&] {
    require(graph != nullptr && chi2 != nullptr, "graphopt_chi2: an argument is NULL.");
    *chi2 = embed::chi2(graph->graph, level);
  });
}

void graphopt_default_options(graphopt_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->max_num_iterations = 100;
  options->function_tolerance = 1e-9;
  options->step_tolerance = 1e-12;
}

graphopt_status graphopt_optimize(graphopt_graph* graph, const graphopt_options* options,
                                  graphopt_summary* summary) {
  return guarded([&] {
    require(graph != nullptr, "graphopt_optimize: graph is NULL.");
    graphopt_options chosen;
    graphopt_default_options(&chosen);
    if (options != nullptr) chosen = *options;
    require_choice("method", chosen.method, GRAPHOPT_DOGLEG);
    require_choice("linear_solver", chosen.linear_solver, GRAPHOPT_PCG);
    require_choice("schur", chosen.schur, GRAPHOPT_SCHUR_IMPLICIT);
    require_choice("fix", chosen.fix, GRAPHOPT_FIX_NONE);
    const std::string device = chosen.device == nullptr ? "cpu" : chosen.device;
    require(device == "cpu" || device == "vulkan" || device.rfind("vulkan:", 0) == 0,
            "device is '" + device + "', expected cpu, vulkan, or vulkan: and an index or a name.");
    require(chosen.max_num_iterations >= 0, "max_num_iterations is negative.");
    for (const double number : {chosen.function_tolerance, chosen.gradient_tolerance, chosen.step_tolerance,
                                chosen.initial_lambda, chosen.time_limit})
      require(number >= 0.0 && std::isfinite(number),
              "a tolerance, initial_lambda or time_limit is negative or not finite.");
    const graphopt_summary result = embed::optimize(graph->graph, chosen);
    if (summary != nullptr) *summary = result;
  });
}

graphopt_status graphopt_covariances(const graphopt_graph* graph, int level, const int64_t* ids,
                                     int64_t count, double* covariances, int64_t size) {
  return guarded([&] {
    require(graph != nullptr, "graphopt_covariances: graph is NULL.");
    require_arrays("graphopt_covariances", count, {ids, covariances});
    std::int64_t needed = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const Place place = graph->graph.vertex(ids[k]);
      const std::int64_t dim =
          graph->graph.vertex_sets[static_cast<std::size_t>(place.set)].type->tangent_dim;
      needed += dim * dim;
    }
    require(size == needed, "graphopt_covariances: size is " + std::to_string(size) +
                                ", these vertices need " + std::to_string(needed) + ".");
    if (count > 0) embed::covariances(graph->graph, level, ids, count, covariances);
  });
}
