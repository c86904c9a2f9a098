// .g2o texts, and the graph.txt of `graphopt export`:
//
//   graphopt graph 1
//   vertices TAG n      then n lines: id fixed numbers
//   parameters TAG n    id numbers
//   edges TAG n         vertex ids, parameter ids, robust kernel, its width, measurement, upper triangle of
//   Omega
#include <algorithm>
#include <cstdio>

#include "error.h"
#include "graph.h"
#include "text/tokenizer.h"
#include "words.h"

namespace graphopt::embed {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::int64_t kLowest = -(std::int64_t{1} << 62), kHighest = std::int64_t{1} << 62;

// ------------------------------------------------------------------- graph.txt

void read_vertices(Graph& graph, Words& words) {
  const VertexType& type = graph.types->vertex(words.word("a tag"));
  std::vector<double> numbers(static_cast<std::size_t>(type.storage_dim));
  for (std::int64_t k = words.integer("a number of vertices", 0, kMost); k > 0; --k) {
    const std::int64_t id = words.integer("an id", kLowest, kHighest);
    const bool fixed = words.count("0 or 1", 1) == 1;
    for (double& number : numbers) number = words.number("a number");
    graph.add_vertices(type, &id, numbers.data(), 1);
    if (fixed) graph.set_fixed(&id, 1, true);
  }
}

void read_parameters(Graph& graph, Words& words) {
  const ParameterType& type = graph.types->parameter(words.word("a tag"));
  std::vector<double> numbers(static_cast<std::size_t>(type.storage_dim));
  for (std::int64_t k = words.integer("a number of parameters", 0, kMost); k > 0; --k) {
    const std::int64_t id = words.integer("an id", kLowest, kHighest);
    for (double& number : numbers) number = words.number("a number");
    graph.add_parameters(type, &id, numbers.data(), 1);
  }
}

void read_edges(Graph& graph, Words& words) {
  const EdgeType& type = graph.types->edge(words.word("a tag"));
  std::vector<std::int64_t> vertices(type.vertices.size()), parameters(type.parameters.size());
  std::vector<double> measurement(static_cast<std::size_t>(type.measurement_dim));
  std::vector<double> information(static_cast<std::size_t>(type.information_dim()));
  for (std::int64_t k = words.integer("a number of edges", 0, kMost); k > 0; --k) {
    for (std::int64_t& id : vertices) id = words.integer("an id", kLowest, kHighest);
    for (std::int64_t& id : parameters) id = words.integer("an id", kLowest, kHighest);
    const int kernel = graph.types->kernel(words.word("a robust kernel").c_str());
    const double width = words.number("a kernel width");
    for (double& number : measurement) number = words.number("a number");
    for (double& number : information) number = words.number("a number");
    graph.add_edges(type, vertices.data(), parameters.data(), measurement.data(), information.data(), kernel,
                    &width, 1);
  }
}

void read_own(Graph& graph, const std::string& text, const std::string& name) {
  Words words(text, name);
  for (const char* one : {"graphopt", "graph", "1"}) words.expect(one);
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

// ------------------------------------------------------------------- .g2o

void add_rule(std::unordered_map<std::string, text::TagRule>& rules, const std::string& tag,
              std::size_t num_ids, const std::vector<Layout>& layouts) {
  if (layouts.empty()) return;
  text::TagRule rule;
  rule.num_ids = static_cast<std::int64_t>(num_ids);
  for (const Layout& layout : layouts) rule.num_values.push_back(layout.num_tokens);
  rule.longer_allowed = true;
  rule.layout = std::to_string(num_ids) + " ids, " + std::to_string(layouts.front().num_tokens) + " numbers";
  rules[tag] = rule;
}

// The longest layout that a line with so many numbers fills.
const Layout& layout_for(const std::vector<Layout>& layouts, std::int64_t num_values) {
  const Layout* best = &layouts.front();
  for (const Layout& one : layouts)
    if (one.num_tokens <= num_values && (best->num_tokens > num_values || one.num_tokens > best->num_tokens))
      best = &one;
  return *best;
}

std::vector<double> decoded(const text::Group& group, const std::vector<Layout>& layouts) {
  const Layout& layout = layout_for(layouts, group.num_values);
  std::vector<double> numbers(group.lines.size() * layout.entries.size());
  for (std::size_t k = 0; k < group.lines.size(); ++k)
    layout.decode(group.values.data() + k * static_cast<std::size_t>(group.num_values),
                  numbers.data() + k * layout.entries.size());
  return numbers;
}

void add_g2o_edges(Graph& graph, const EdgeType& type, const text::Group& group) {
  const std::size_t arity = type.vertices.size(), m = static_cast<std::size_t>(type.measurement_dim);
  const std::vector<double> numbers = decoded(group, type.layouts);
  const std::size_t width = m + static_cast<std::size_t>(type.information_dim());
  const double no_width = 1.0;
  for (std::size_t k = 0; k < group.lines.size(); ++k) {
    const std::int64_t* ids = group.ids.data() + k * static_cast<std::size_t>(group.num_ids);
    graph.add_edges(type, ids, ids + arity, numbers.data() + k * width, numbers.data() + k * width + m, 0,
                    &no_width, 1);
  }
}

void read_g2o(Graph& graph, const std::string& text, const std::string& name) {
  const Types& types = *graph.types;
  std::unordered_map<std::string, text::TagRule> rules;
  for (const auto& type : types.vertices()) add_rule(rules, type->tag, 1, type->layouts);
  for (const auto& type : types.parameters()) add_rule(rules, type->tag, 1, type->layouts);
  for (const auto& type : types.edges())
    add_rule(rules, type->tag, type->vertices.size() + type->parameters.size(), type->layouts);
  rules["FIX"].num_ids = text::kAllIds;
  const text::TaggedLines lines = text::read_tagged_lines(text, rules);
  if (lines.error)
    throw Error(GRAPHOPT_FORMAT_ERROR,
                name + ":" + std::to_string(lines.error->line) + ": " + lines.error->message);
  if (!lines.unknown.empty()) {
    const auto& first = lines.unknown.front();
    const std::string line = text.substr(first.begin, first.size);
    throw Error(GRAPHOPT_FORMAT_ERROR,
                name + ":" + std::to_string(first.line) + ": '" + line.substr(0, line.find_first_of(" \t")) +
                    "' is no tag that this library reads. `graphopt export` writes such files for it.");
  }
  const auto each = [&](const auto& known, auto add) {
    for (const auto& type : known)
      for (const text::Group& group : lines.groups)
        if (group.tag == type->tag) add(*type, group);
  };
  each(types.vertices(), [&](const VertexType& type, const text::Group& group) {
    graph.add_vertices(type, group.ids.data(), decoded(group, type.layouts).data(),
                       static_cast<std::int64_t>(group.lines.size()));
  });
  each(types.parameters(), [&](const ParameterType& type, const text::Group& group) {
    graph.add_parameters(type, group.ids.data(), decoded(group, type.layouts).data(),
                         static_cast<std::int64_t>(group.lines.size()));
  });
  each(types.edges(),
       [&](const EdgeType& type, const text::Group& group) { add_g2o_edges(graph, type, group); });
  for (const text::Group& group : lines.groups)
    if (group.tag == "FIX")
      graph.set_fixed(group.ids.data(), static_cast<std::int64_t>(group.ids.size()), true);
}

void put(std::string& to, const double* numbers, std::size_t count) {
  char digits[32];
  for (std::size_t k = 0; k < count; ++k) {
    std::snprintf(digits, sizeof digits, " %.17g", numbers[k]);
    std::replace(digits, digits + sizeof digits, ',', '.');  // of a locale
    to += digits;
  }
}

void put(std::string& to, const std::int64_t* ids, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) to += std::to_string(ids[k]) + " ";
}

}  // namespace

void read_graph(Graph& graph, const std::string& text, const std::string& name) {
  Graph read = graph;
  if (text.rfind("graphopt graph ", 0) == 0)
    read_own(read, text, name);
  else
    read_g2o(read, text, name);
  graph = std::move(read);
}

std::string write_graph(const Graph& graph) {
  std::string text = "graphopt graph 1\n";
  for (const VertexSet& set : graph.vertex_sets) {
    text += "vertices " + set.type->tag + " " + std::to_string(set.ids.size()) + "\n";
    const auto dim = static_cast<std::size_t>(set.type->storage_dim);
    for (std::size_t k = 0; k < set.ids.size(); ++k) {
      text += std::to_string(set.ids[k]) + (set.fixed[k] != 0 ? " 1" : " 0");
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
    text += "edges " + set.type->tag + " " + std::to_string(set.size()) + "\n";
    const std::size_t arity = set.type->vertices.size(), num_parameters = set.type->parameters.size();
    const auto m = static_cast<std::size_t>(set.type->measurement_dim);
    const auto n = static_cast<std::size_t>(set.type->information_dim());
    for (std::size_t k = 0; k < set.kernel_width.size(); ++k) {
      put(text, set.vertices.data() + k * arity, arity);
      put(text, set.parameters.data() + k * num_parameters, num_parameters);
      text += graph.types->kernels()[static_cast<std::size_t>(set.kernel)].name;
      put(text, &set.kernel_width[k], 1);
      put(text, set.measurement.data() + k * m, m);
      put(text, set.information.data() + k * n, n);
      text += "\n";
    }
  }
  return text;
}

}  // namespace graphopt::embed
