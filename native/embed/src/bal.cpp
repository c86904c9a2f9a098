// BAL texts, as graphopt/io/bal.py reads them: cameras are vertices 0 .. n - 1, points, marginalized, follow.
#include <numeric>

#include "error.h"
#include "graph.h"
#include "text/table.h"

namespace graphopt::embed {
namespace {

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  text::Table table(std::int64_t rows, std::int64_t num_integers, std::int64_t num_values) {
    text::Table table = text::read_table(text_, offset_, line_, rows, num_integers, num_values);
    if (table.error) fail(table.error->line, table.error->message);
    offset_ = table.offset;
    line_ = table.line;
    return table;
  }

  [[noreturn]] void fail(std::int64_t line, const std::string& what) const {
    throw Error(GRAPHOPT_FORMAT_ERROR, name_ + ":" + std::to_string(line) + ": " + what);
  }

  void expect_end() const {
    if (offset_ < text_.size()) fail(line_, "expected the end of the file");
  }

 private:
  const std::string& text_;
  const std::string& name_;
  std::size_t offset_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace

void read_bal(Graph& graph, const std::string& text, const std::string& name) {
  const VertexType &camera = graph.types->vertex("VERTEX_CAM_BAL"),
                   &point = graph.types->vertex("VERTEX_TRACKXYZ");
  const EdgeType& observation = graph.types->edge("EDGE_OBSERVATION_BAL");
  Reader reader(text, name);
  const std::vector<std::int64_t> counts = reader.table(1, 3, 0).integers;
  const text::Table seen = reader.table(counts[2], 2, 2);
  const text::Table cameras = reader.table(counts[0], 0, camera.storage_dim);
  const text::Table points = reader.table(counts[1], 0, point.storage_dim);
  reader.expect_end();
  EdgeRows rows;
  for (std::size_t k = 0; k < seen.integers.size(); ++k) {
    const std::int64_t index = seen.integers[k], count = counts[k % 2];
    if (index < 0 || index >= count)
      reader.fail(2 + static_cast<std::int64_t>(k / 2), std::string(k % 2 == 0 ? "camera " : "point ") +
                                                            std::to_string(index) + ", expected 0 to " +
                                                            std::to_string(count - 1));
    rows.vertices.push_back(k % 2 == 0 ? index : counts[0] + index);
  }
  rows.measurement = seen.values;
  rows.kernel_width.assign(static_cast<std::size_t>(counts[2]), 1.0);
  for (std::int64_t k = 0; k < counts[2]; ++k)
    rows.information.insert(rows.information.end(), {1.0, 0.0, 1.0});
  std::vector<std::int64_t> ids(static_cast<std::size_t>(counts[0] + counts[1]));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  graph.add_vertices(camera, ids.data(), cameras.values.data(), counts[0]);
  graph.add_vertices(point, ids.data() + counts[0], points.values.data(), counts[1]);
  graph.set_marginalized(ids.data() + counts[0], counts[1], true);
  graph.add_edges({&observation, 0, 0}, rows);
}

}  // namespace graphopt::embed
