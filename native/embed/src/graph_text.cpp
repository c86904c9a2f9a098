// graph.txt, the format of `graphopt export` (graphopt/io/export.py says what is where).
#include <cstdio>
#include <map>

#include "error.h"
#include "graph.h"
#include "words.h"

namespace graphopt::embed {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::int64_t kLowest = -(std::int64_t{1} << 62), kHighest = std::int64_t{1} << 62;

void append_numbers(Words& words, std::vector<double>& to, int count) {
  for (int k = 0; k < count; ++k) to.push_back(words.number("a number"));
}

void read_vertices(Graph& graph, Words& words) {
  const VertexType& type = graph.types->vertex(words.word("a tag"));
  std::vector<std::int64_t> ids, sequence, fixed, marginalized;
  std::vector<double> numbers;
  for (std::int64_t k = words.integer("a number of vertices", 0, kMost); k > 0; --k) {
    ids.push_back(words.integer("an id", kLowest, kHighest));
    const int flags = words.count("flags from 0", 3);
    if ((flags & 1) != 0) fixed.push_back(ids.back());
    if ((flags & 2) != 0) marginalized.push_back(ids.back());
    sequence.push_back(words.integer("a place in the sequence", 0, kHighest));
    append_numbers(words, numbers, type.storage_dim);
  }
  const auto size = [](const auto& one) { return static_cast<std::int64_t>(one.size()); };
  graph.add_vertices(type, ids.data(), numbers.data(), size(ids), sequence.data());
  graph.set_fixed(fixed.data(), size(fixed), true);
  graph.set_marginalized(marginalized.data(), size(marginalized), true);
}

void read_parameters(Graph& graph, Words& words) {
  const ParameterType& type = graph.types->parameter(words.word("a tag"));
  std::vector<std::int64_t> ids;
  std::vector<double> numbers;
  for (std::int64_t k = words.integer("a number of parameters", 0, kMost); k > 0; --k) {
    ids.push_back(words.integer("an id", kLowest, kHighest));
    append_numbers(words, numbers, type.storage_dim);
  }
  graph.add_parameters(type, ids.data(), numbers.data(), static_cast<std::int64_t>(ids.size()));
}

void read_edges(Graph& graph, Words& words) {
  const EdgeType& type = graph.types->edge(words.word("a tag"));
  std::map<std::pair<int, int>, EdgeRows> read;
  std::vector<std::int64_t> ids(type.vertices.size() + type.parameters.size());
  for (std::int64_t k = words.integer("a number of edges", 0, kMost); k > 0; --k) {
    for (std::int64_t& id : ids) id = words.integer("an id", kLowest, kHighest);
    const int kernel = graph.types->kernel(words.word("a robust kernel").c_str());
    const double width = words.number("a kernel width");
    if (!(width > 0.0)) words.fail("expected a kernel width > 0");
    const int level = static_cast<int>(words.integer("a level", -1000000000, 1000000000));
    EdgeRows& rows = read[{kernel, level}];
    const auto parameters = ids.begin() + static_cast<std::ptrdiff_t>(type.vertices.size());
    rows.vertices.insert(rows.vertices.end(), ids.begin(), parameters);
    rows.parameters.insert(rows.parameters.end(), parameters, ids.end());
    rows.kernel_width.push_back(width);
    append_numbers(words, rows.measurement, type.measurement_dim);
    append_numbers(words, rows.information, type.information_dim());
  }
  for (const auto& [kind, rows] : read) graph.add_edges({&type, kind.first, kind.second}, rows);
}

void read_own(Graph& graph, const std::string& text, const std::string& name) {
  Words words(text, name);
  for (const char* one : {"graphopt", "graph", "2"}) words.expect(one);
  while (!words.at_end()) {
    const std::string kind = words.word("vertices, parameters or edges");
    if (kind == "vertices") {
      read_vertices(graph, words);
    } else if (kind == "parameters") {
      read_parameters(graph, words);
    } else if (kind == "edges") {
      read_edges(graph, words);
    } else {
      words.fail("expected vertices, parameters or edges, got '" + kind + "'");
    }
  }
}

void put(std::string& to, const double* numbers, std::size_t count) {
  char digits[32];
  for (std::size_t k = 0; k < count; ++k) {
    std::snprintf(digits, sizeof digits, " %.17g", numbers[k]);
    for (char& c : digits)
      if (c == ',') c = '.';  // of a locale
    to += digits;
  }
}

void put(std::string& to, const std::int64_t* ids, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) to += std::to_string(ids[k]) + " ";
}

std::string write_own(const Graph& graph) {
  std::string text = "graphopt graph 2\n";
  for (const VertexSet& set : graph.vertex_sets) {
    text += "vertices " + set.type->tag + " " + std::to_string(set.ids.size()) + "\n";
    const auto dim = static_cast<std::size_t>(set.type->storage_dim);
    for (std::size_t k = 0; k < set.ids.size(); ++k) {
      const int flags = set.fixed[k] + 2 * set.marginalized[k];
      text +=
          std::to_string(set.ids[k]) + " " + std::to_string(flags) + " " + std::to_string(set.sequence[k]);
      put(text, set.estimate.data() + k * dim, dim);
      text += "\n";
    }
  }
  for (const ParameterSet& set : graph.parameter_sets) {
    text += "parameters " + set.type->tag + " " + std::to_string(set.ids.size()) + "\n";
    const auto dim = static_cast<std::size_t>(set.type->storage_dim);
    for (std::size_t k = 0; k < set.ids.size(); ++k) {
      text += std::to_string(set.ids[k]);
      put(text, set.values.data() + k * dim, dim);
      text += "\n";
    }
  }
  for (const EdgeSet& set : graph.edge_sets) {
    const EdgeType& type = *set.kind.type;
    text += "edges " + type.tag + " " + std::to_string(set.size()) + "\n";
    const std::size_t arity = type.vertices.size(), num_parameters = type.parameters.size();
    const auto m = static_cast<std::size_t>(type.measurement_dim);
    const auto n = static_cast<std::size_t>(type.information_dim());
    for (std::size_t k = 0; k < set.kernel_width.size(); ++k) {
      put(text, set.vertices.data() + k * arity, arity);
      put(text, set.parameters.data() + k * num_parameters, num_parameters);
      text += graph.types->kernels()[static_cast<std::size_t>(set.kind.kernel)].name;
      put(text, &set.kernel_width[k], 1);
      text += " " + std::to_string(set.kind.level);
      put(text, set.measurement.data() + k * m, m);
      put(text, set.information.data() + k * n, n);
      text += "\n";
    }
  }
  return text;
}

bool is_bal(const std::string& text) {
  std::int64_t integers = 0;
  bool in_number = false;
  for (const char c : text) {
    if (c == '\n' && integers > 0) break;
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && std::isspace(static_cast<unsigned char>(c)) == 0) return false;
    integers += is_digit && !in_number ? 1 : 0;
    in_number = is_digit;
  }
  return integers == 3;
}

std::int64_t read_any(Graph& graph, const std::string& text, const std::string& name,
                      const ReadRules& rules) {
  if (text.rfind("graphopt graph ", 0) == 0)
    read_own(graph, text, name);
  else if (is_bal(text))
    read_bal(graph, text, name);
  else
    return read_g2o(graph, text, name, rules);
  return 0;
}

}  // namespace

std::int64_t read_graph(Graph& graph, const std::string& text, const std::string& name,
                        const ReadRules& rules) {
  Graph read = graph;
  std::int64_t num_unknown = 0;
  try {
    num_unknown = read_any(read, text, name, rules);
  } catch (const Error& error) {
    if (error.status == GRAPHOPT_FORMAT_ERROR) throw;
    throw Error(error.status, name + ": " + error.what());
  }
  graph = std::move(read);
  return num_unknown;
}

std::string write_graph(const Graph& graph, const std::string& name) {
  const std::string ending = ".g2o";
  const bool is_g2o =
      name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
  return is_g2o ? write_g2o(graph) : write_own(graph);
}

}  // namespace graphopt::embed
