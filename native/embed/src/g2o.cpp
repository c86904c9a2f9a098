// .g2o texts. What differs between the dialects of C++ g2o and g2opy is in the layouts of the types; a
// comment `# dialect: NAME` says which one a file is in. Robust kernels stand in comments, too
// (text/kernel_comments.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "error.h"
#include "graph.h"
#include "problem.h"
#include "text/format.h"
#include "text/kernel_comments.h"
#include "text/tokenizer.h"

namespace graphopt::embed {
namespace {

constexpr std::size_t kHead = 4096;  // bytes in which the dialect's comment is looked for
constexpr int kPoseDim = 7;

// What the first comment `# dialect: NAME` of a text names; empty: there is none.
std::string dialect_comment(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() != '#') continue;
    std::istringstream words(line.substr(1));
    std::string key, name, more;
    if (words >> key && key == "dialect:" && words >> name && !(words >> more)) return name;
  }
  return "";
}

// Which dialect to take the lines of a type in.
struct Choice {
  Dialect general = Dialect::kPython, look_alikes = Dialect::kPython;
  Dialect of(const Type& type) const { return type.looks_alike ? look_alikes : general; }
};

// Where the line of a tag belongs.
struct Known {
  const VertexType* vertex = nullptr;
  const ParameterType* parameter = nullptr;
  std::vector<const EdgeType*> edges;  // one per arity
  std::string layout;                  // tag of its layouts
};

class Reader {
 public:
  Reader(const Types& types, const std::string& text, const std::string& name)
      : types_(types), text_(text), name_(name) {
    for (const auto& type : types.vertices()) learn(*type, [&](Known& known) { known.vertex = type.get(); });
    for (const auto& type : types.parameters())
      learn(*type, [&](Known& known) { known.parameter = type.get(); });
    for (const auto& type : types.edges())
      learn(*type, [&](Known& known) { known.edges.push_back(type.get()); });
    std::unordered_map<std::string, text::TagRule> rules;
    for (const auto& [tag, known] : known_) rules[tag] = rule(known);
    rules["FIX"].num_ids = text::kAllIds;
    lines_ = text::read_tagged_lines(text, rules);
    if (lines_.error) fail(lines_.error->line, lines_.error->message);
  }

  std::int64_t num_unknown() const { return static_cast<std::int64_t>(lines_.unknown.size()); }

  void refuse_unknown() const {
    if (lines_.unknown.empty()) return;
    const auto& first = lines_.unknown.front();
    const std::string line = text_.substr(first.begin, first.size);
    fail(first.line,
         "'" + line.substr(0, std::min(line.find_first_of(" \t"), std::size_t{40})) +
             "' is no tag that this library knows. Pass num_unknown to leave such lines out, or types "
             "that `graphopt export` wrote.");
  }

  // A file of edges alone needs start values, which are not made here.
  void require_vertices(const Graph& graph) const {
    const auto has = [&](auto member) {
      return std::any_of(lines_.groups.begin(), lines_.groups.end(), [&](const text::Group& group) {
        const Known* known = find(group);
        return known != nullptr && member(*known);
      });
    };
    if (!graph.vertex_sets.empty() || !has([](const Known& known) { return !known.edges.empty(); }) ||
        has([](const Known& known) { return known.vertex != nullptr; }))
      return;
    fail(lines_.groups.front().lines.front(),
         "the file has edges and no vertices. Python's graphopt.read and graphopt.initialize make some with "
         "start "
         "values, graphopt.write writes them.");
  }

  bool has_look_alikes() const {
    return std::any_of(lines_.groups.begin(), lines_.groups.end(), [&](const text::Group& group) {
      const auto found = known_.find(group.tag);
      if (found == known_.end()) return false;
      const Known& known = found->second;
      return (known.vertex != nullptr && known.vertex->looks_alike) ||
             (!known.edges.empty() && known.edges.front()->looks_alike);
    });
  }

  void add_to(Graph& graph, const Choice& dialect) const {
    for (const text::Group& group : lines_.groups)
      if (const Known* known = find(group); known != nullptr && known->vertex != nullptr) {
        const VertexType& type = *known->vertex;
        check_quaternions(type, *known, group, type.storage_dim);
        graph.add_vertices(type, group.ids.data(), decoded(type, *known, group, dialect).data(), size(group),
                           group.lines.data());
      }
    for (const text::Group& group : lines_.groups)
      if (const Known* known = find(group); known != nullptr && known->parameter != nullptr) {
        const ParameterType& type = *known->parameter;
        check_quaternions(type, *known, group, type.storage_dim);
        graph.add_parameters(type, group.ids.data(), decoded(type, *known, group, dialect).data(),
                             size(group));
      }
    add_edges(graph, dialect);
    for (const text::Group& group : lines_.groups)
      if (group.tag == "FIX")
        graph.set_fixed(group.ids.data(), static_cast<std::int64_t>(group.ids.size()), true);
  }

 private:
  struct Robust {
    int kernel = 0;
    double width = 1.0;
  };

  [[noreturn]] void fail(std::int64_t line, const std::string& what) const {
    throw Error(GRAPHOPT_FORMAT_ERROR, name_ + ":" + std::to_string(line) + ": " + what);
  }

  template <class Note>
  void learn(const Type& type, Note note) {
    for (const std::string& tag : type.names) {
      known_[tag].layout = type.names.front();
      note(known_[tag]);
    }
    for (const Layout& layout : type.layouts)
      if (std::find(type.names.begin(), type.names.end(), layout.tag) == type.names.end() &&
          known_[layout.tag].layout.empty()) {
        known_[layout.tag].layout = layout.tag;
        note(known_[layout.tag]);
      }
  }

  static text::TagRule rule(const Known& known) {
    text::TagRule rule;
    rule.longer_allowed = true;
    if (known.edges.empty()) {
      rule.num_ids = 1;
      rule.layout = "an id, numbers";
    } else if (is_counted(known)) {
      rule.num_ids = text::kCountedIds;
      rule.layout = "number of vertices, vertex ids, numbers";
    } else {
      const EdgeType& type = *known.edges.front();
      rule.num_ids = static_cast<std::int64_t>(type.vertices.size() + type.parameters.size());
      rule.layout = std::to_string(rule.num_ids) + " ids, numbers";
    }
    return rule;
  }

  static bool is_counted(const Known& known) {
    return known.edges.front()->tag.find('/') != std::string::npos;
  }

  static std::int64_t size(const text::Group& group) { return static_cast<std::int64_t>(group.lines.size()); }

  const Known* find(const text::Group& group) const {
    const auto found = known_.find(group.tag);
    return found == known_.end() ? nullptr : &found->second;
  }

  // That of as many numbers, or the longest one of fewer.
  const Layout& layout_for(const Type& type, const Known& known, const text::Group& group,
                           Dialect dialect) const {
    const Layout* best = nullptr;
    std::string expected;
    for (const Layout& one : type.layouts) {
      if (one.tag != known.layout || (one.dialect != Dialect::kAny && one.dialect != dialect)) continue;
      expected += (expected.empty() ? "" : " or ") + std::to_string(one.num_tokens);
      if (one.num_tokens == group.num_values) return one;
      if (best == nullptr || one.num_tokens > best->num_tokens) best = &one;
    }
    if (best == nullptr || best->num_tokens > group.num_values)
      fail(group.lines.front(), group.tag + ": got " + std::to_string(group.num_values) +
                                    " numbers, expected " + (expected.empty() ? "none in files" : expected));
    return *best;
  }

  std::vector<double> decoded(const Type& type, const Known& known, const text::Group& group,
                              const Choice& choice) const {
    const Layout& layout = layout_for(type, known, group, choice.of(type));
    const auto n = static_cast<std::size_t>(layout.num_tokens),
               given = static_cast<std::size_t>(group.num_values);
    std::vector<double> tokens;
    for (std::size_t k = 0; k < group.lines.size(); ++k)
      tokens.insert(tokens.end(), group.values.begin() + static_cast<std::ptrdiff_t>(k * given),
                    group.values.begin() + static_cast<std::ptrdiff_t>(k * given + n));
    std::vector<double> numbers(group.lines.size() * static_cast<std::size_t>(layout.decode->num_outputs()));
    vm::run_rows(*layout.decode, tokens.data(), size(group), numbers.data());
    for (std::size_t k = 0; k < numbers.size(); ++k)
      if (!std::isfinite(numbers[k]))
        fail(group.lines[k / static_cast<std::size_t>(layout.decode->num_outputs())],
             group.tag + ": the numbers of this line make no finite value");
    return numbers;
  }

  // A pose x y z qx qy qz qw whose quaternion has no direction.
  void check_quaternions(const Type& type, const Known& known, const text::Group& group,
                         int num_stored) const {
    if (num_stored != kPoseDim || group.num_values < kPoseDim || known.layout != type.names.front()) return;
    for (std::size_t k = 0; k < group.lines.size(); ++k) {
      const double* q = group.values.data() + k * static_cast<std::size_t>(group.num_values) + 3;
      const double squared = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
      if (!(squared >= 1e-12 && std::isfinite(squared)))
        fail(group.lines[k], group.tag + ": the quaternion has no direction, expected length 1");
    }
  }

  void add_edges(Graph& graph, const Choice& dialect) const {
    const auto robust = robust_kernels();
    for (const text::Group& group : lines_.groups) {
      const Known* known = find(group);
      if (known == nullptr || known->edges.empty()) continue;
      const EdgeType& type = type_of(*known, group);
      check_quaternions(type, *known, group, type.measurement_dim);
      const std::vector<double> numbers = decoded(type, *known, group, dialect);
      const std::size_t arity = type.vertices.size(), num_ids = static_cast<std::size_t>(group.num_ids);
      const auto m = static_cast<std::size_t>(type.measurement_dim);
      const std::size_t width = m + static_cast<std::size_t>(type.information_dim());
      std::map<int, EdgeRows> by_kernel;
      for (std::size_t k = 0; k < group.lines.size(); ++k) {
        const auto found = robust.find(group.lines[k]);
        const Robust own = found == robust.end() ? Robust() : found->second;
        EdgeRows& rows = by_kernel[own.kernel];
        const std::int64_t* ids = group.ids.data() + k * num_ids;
        rows.vertices.insert(rows.vertices.end(), ids, ids + arity);
        rows.parameters.insert(rows.parameters.end(), ids + arity, ids + num_ids);
        const double* row = numbers.data() + k * width;
        rows.measurement.insert(rows.measurement.end(), row, row + m);
        rows.information.insert(rows.information.end(), row + m, row + width);
        rows.kernel_width.push_back(own.width);
      }
      for (const auto& [kernel, rows] : by_kernel) graph.add_edges({&type, kernel, 0}, rows);
    }
  }

  const EdgeType& type_of(const Known& known, const text::Group& group) const {
    if (!is_counted(known)) return *known.edges.front();
    for (const EdgeType* type : known.edges)
      if (static_cast<std::int64_t>(type->vertices.size()) == group.num_ids) return *type;
    fail(group.lines.front(), group.tag + ": no type with " + std::to_string(group.num_ids) +
                                  " vertices. `graphopt export` of this file writes it.");
  }

  // By line.
  std::map<std::int64_t, Robust> robust_kernels() const {
    std::map<std::int64_t, Robust> result;
    const text::KernelComments read = text::read_kernel_comments(text_);
    for (const text::KernelComment& comment : read.comments) {
      const Robust robust{types_.kernel(comment.name.c_str()), comment.width};
      std::vector<std::int64_t> lines;
      for (const text::Group& group : lines_.groups)
        if (const Known* known = find(group);
            known != nullptr && !known->edges.empty() && known->edges.front()->names.front() == comment.tag)
          lines.insert(lines.end(), group.lines.begin(), group.lines.end());
      if (lines.empty()) fail(comment.line, "the file has no edge " + comment.tag);
      std::sort(lines.begin(), lines.end());
      const auto count = static_cast<std::int64_t>(lines.size());
      std::vector<std::pair<std::int64_t, std::int64_t>> edges = comment.edges;
      if (edges.empty()) edges = {{0, count - 1}};
      for (const auto& [first, last] : edges) {
        if (last >= count)
          fail(comment.line, "'" + std::to_string(first) + "-" + std::to_string(last) +
                                 "' is none of the edges 0-" + std::to_string(count - 1) + " of " +
                                 comment.tag);
        for (std::int64_t k = first; k <= last; ++k) result[lines[static_cast<std::size_t>(k)]] = robust;
      }
    }
    if (read.error) fail(read.error->line, read.error->message);
    return result;
  }

  const Types& types_;
  const std::string& text_;
  const std::string& name_;
  std::unordered_map<std::string, Known> known_;
  text::TaggedLines lines_;
};

Choice same(Dialect dialect) { return {dialect, dialect}; }

// ------------------------------------------------------------------- writing

std::vector<double> run(const vm::Program& program, const std::vector<double>& rows) {
  const std::size_t count = rows.size() / static_cast<std::size_t>(program.num_inputs());
  std::vector<double> result(count * static_cast<std::size_t>(program.num_outputs()));
  vm::run_rows(program, rows.data(), static_cast<std::int64_t>(count), result.data());
  return result;
}

bool are_equal(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    if (!(std::fabs(a[k] - b[k]) <= 1e-9 + 1e-12 * std::fabs(b[k]))) return false;
  return true;
}

// Tokens of rows of stored numbers, by the first layout from which they can be read again.
struct Written {
  std::vector<double> tokens;
  int num_tokens = 0;
};

Written write_rows(const Type& type, const std::vector<double>& numbers, Dialect dialect) {
  const Layout* best = nullptr;
  for (const Layout& one : type.layouts) {
    if (one.encode == nullptr || (one.dialect != Dialect::kAny && one.dialect != dialect)) continue;
    if (best == nullptr) best = &one;
    Written written{run(*one.encode, numbers), one.num_tokens};
    if (are_equal(run(*one.decode, written.tokens), numbers)) return written;
  }
  if (best == nullptr)
    throw Error(GRAPHOPT_FORMAT_ERROR, type.tag + " cannot stand in a .g2o file; write a graph.txt instead.");
  return {run(*best->encode, numbers), best->num_tokens};
}

class Writer {
 public:
  // Lines of a set; notes whether the other dialect has other ones.
  void add(const Type& type, const std::vector<std::int64_t>& ids, const std::vector<double>& numbers) {
    const Written cpp = write_rows(type, numbers, Dialect::kCpp),
                  python = write_rows(type, numbers, Dialect::kPython);
    differs_ |= type.tag != type.names.front() || cpp.tokens != python.tokens;
    const auto rows = static_cast<std::int64_t>(cpp.tokens.size()) / std::max(cpp.num_tokens, 1);
    if (rows == 0) return;
    const auto num_ids = static_cast<std::int64_t>(ids.size()) / rows;
    if (type.tag == type.names.front()) {
      text_ +=
          text::format_rows(type.tag, false, ids.data(), num_ids, cpp.tokens.data(), cpp.num_tokens, rows);
      return;
    }
    for (std::int64_t k = 0; k < rows; ++k) {  // of any arity: TAG ids || numbers
      text_ += type.names.front();
      for (std::int64_t i = 0; i < num_ids; ++i)
        text_ += " " + std::to_string(ids[static_cast<std::size_t>(k * num_ids + i)]);
      text_ += " || " + text::format_rows("", false, nullptr, 0, cpp.tokens.data() + k * cpp.num_tokens,
                                          cpp.num_tokens, 1);
    }
  }

  void add_line(const std::string& line) { text_ += line + "\n"; }

  std::string text() const { return (differs_ ? "# dialect: g2o\n" : "") + text_; }

 private:
  std::string text_;
  bool differs_ = false;
};

// Numbers of stored edges: measurement and upper triangle of each.
std::vector<double> data_rows(const EdgeSet& set) {
  const auto m = static_cast<std::ptrdiff_t>(set.kind.type->measurement_dim);
  const auto n = static_cast<std::ptrdiff_t>(set.kind.type->information_dim());
  std::vector<double> result;
  for (std::ptrdiff_t k = 0; k < set.size(); ++k) {
    result.insert(result.end(), set.measurement.begin() + k * m, set.measurement.begin() + (k + 1) * m);
    result.insert(result.end(), set.information.begin() + k * n, set.information.begin() + (k + 1) * n);
  }
  return result;
}

std::vector<std::int64_t> id_rows(const EdgeSet& set) {
  const auto arity = static_cast<std::ptrdiff_t>(set.kind.type->vertices.size());
  const auto num_parameters = static_cast<std::ptrdiff_t>(set.kind.type->parameters.size());
  std::vector<std::int64_t> result;
  for (std::ptrdiff_t k = 0; k < set.size(); ++k) {
    result.insert(result.end(), set.vertices.begin() + k * arity, set.vertices.begin() + (k + 1) * arity);
    result.insert(result.end(), set.parameters.begin() + k * num_parameters,
                  set.parameters.begin() + (k + 1) * num_parameters);
  }
  return result;
}

// Comments with the robust kernels of all edges, whose lines of one tag follow each other set by set.
void add_kernels(const Graph& graph, Writer& writer) {
  std::map<std::string, std::int64_t> lines_before;
  for (const EdgeSet& set : graph.edge_sets) {
    std::int64_t& first = lines_before[set.kind.type->names.front()];
    if (set.kind.kernel != 0) {
      std::int64_t begin = 0;
      for (std::int64_t k = 1; k <= set.size(); ++k) {
        const auto at = static_cast<std::size_t>(begin);
        if (k < set.size() && set.kernel_width[static_cast<std::size_t>(k)] == set.kernel_width[at]) continue;
        const double width = set.kernel_width[at];
        std::string digits = text::format_rows("", false, nullptr, 0, &width, 1, 1);
        while (!digits.empty() && (digits.back() == '\n' || digits.back() == ' ')) digits.pop_back();
        writer.add_line("# kernel: " + set.kind.type->names.front() + " " +
                        graph.types->kernels()[static_cast<std::size_t>(set.kind.kernel)].name + " " +
                        digits + " " + std::to_string(first + begin) + "-" + std::to_string(first + k - 1));
        begin = k;
      }
    }
    first += set.size();
  }
}

}  // namespace

std::int64_t read_g2o(Graph& graph, const std::string& text, const std::string& name,
                      const ReadRules& rules) {
  const Reader reader(*graph.types, text, name);
  if (!rules.skip_unknown) reader.refuse_unknown();
  reader.require_vertices(graph);
  std::string asked = rules.dialect;
  if (asked.empty()) asked = dialect_comment(text.substr(0, kHead));
  if (asked == "g2o" || asked == "g2opy") {
    reader.add_to(graph, same(asked == "g2o" ? Dialect::kCpp : Dialect::kPython));
    return reader.num_unknown();
  }
  Graph python = graph;
  reader.add_to(python, same(Dialect::kPython));
  if (reader.has_look_alikes()) {
    Graph cpp = graph;
    reader.add_to(cpp, {Dialect::kPython, Dialect::kCpp});
    if (!(chi2(python, 0) < 0.5 * chi2(cpp, 0))) python = std::move(cpp);
  }
  graph = std::move(python);
  return reader.num_unknown();
}

std::string write_g2o(const Graph& graph) {
  Writer writer;
  for (const ParameterSet& set : graph.parameter_sets) writer.add(*set.type, set.ids, set.values);
  for (const VertexSet& set : graph.vertex_sets) writer.add(*set.type, set.ids, set.estimate);
  for (const EdgeSet& set : graph.edge_sets) writer.add(*set.kind.type, id_rows(set), data_rows(set));
  for (const VertexSet& set : graph.vertex_sets)
    for (std::size_t k = 0; k < set.ids.size(); ++k)
      if (set.fixed[k] != 0) writer.add_line("FIX " + std::to_string(set.ids[k]));
  add_kernels(graph, writer);
  return writer.text();
}

}  // namespace graphopt::embed
