#include "linear/low_degree.h"

#include <algorithm>
#include <numeric>

#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr int kFew = 3;  // neighbours

}  // namespace

// Adjacency that changes: a list of each block in one array; one that outgrows its place moves to the end.
class LowDegree::Lists {
 public:
  explicit Lists(const BlockGraph& graph)
      : first_(graph.begin.begin(), graph.begin.end() - 1),
        size_(graph.size()),
        room_(graph.size()),
        neighbor_(graph.neighbor) {
    for (int v = 0; v < graph.size(); ++v) size_[v] = room_[v] = graph.begin[v + 1] - graph.begin[v];
  }

  int size(int v) const { return size_[v]; }
  const std::int32_t* begin(int v) const { return neighbor_.data() + first_[v]; }
  const std::int32_t* end(int v) const { return begin(v) + size_[v]; }

  // Its neighbours, few, become neighbours of each other.
  void eliminate(int v) {
    std::int32_t around[kFew];
    const int count = size(v);
    std::copy_n(begin(v), count, around);
    for (int a = 0; a < count; ++a) {
      remove(around[a], v);
      for (int b = 0; b < count; ++b) {
        if (a != b) add(around[a], around[b]);
      }
    }
  }

 private:
  void remove(int v, int u) {
    std::int32_t* const own = neighbor_.data() + first_[v];
    *std::find(own, own + size_[v], u) = own[size_[v] - 1];
    --size_[v];
  }

  void add(int v, int u) {
    if (std::find(begin(v), end(v), u) != end(v)) return;
    if (size_[v] == room_[v]) move(v);
    neighbor_[first_[v] + size_[v]++] = u;
  }

  void move(int v) {
    const std::int64_t to = static_cast<std::int64_t>(neighbor_.size());
    room_[v] = 2 * room_[v];
    neighbor_.resize(to + room_[v]);
    std::copy_n(neighbor_.data() + first_[v], size_[v], neighbor_.data() + to);
    first_[v] = to;
  }

  std::vector<std::int64_t> first_;
  std::vector<std::int32_t> size_, room_, neighbor_;
};

LowDegree::LowDegree(const BlockGraph& graph) {
  const int n = graph.size();
  Lists lists(graph);
  std::vector<std::int32_t> candidates(n), touched, round(n, -1);
  std::iota(candidates.begin(), candidates.end(), 0);
  std::vector<char> is_early(n, 0);
  for (int number = 0; !candidates.empty(); ++number) {
    touched.clear();
    const std::size_t before = early.size();
    for (const std::int32_t v : candidates) {
      if (round[v] == number || lists.size(v) > kFew) continue;
      is_early[v] = 1;
      early.push_back(v);
      for (const std::int32_t* u = lists.begin(v); u != lists.end(v); ++u) {
        if (round[*u] != number) touched.push_back(*u);
        round[*u] = number;
      }
      lists.eliminate(v);
    }
    throw_if_stopped();
    if (early.size() == before) break;
    std::sort(touched.begin(), touched.end());
    std::swap(candidates, touched);
  }
  for (int v = 0; v < n; ++v) {
    if (!is_early[v]) block.push_back(v);
  }
  set_rest(graph, lists);
}

void LowDegree::set_rest(const BlockGraph& graph, const Lists& lists) {
  std::vector<std::int32_t> vertex(graph.size(), -1);
  for (std::size_t k = 0; k < block.size(); ++k) vertex[block[k]] = static_cast<std::int32_t>(k);
  rest.begin.reserve(block.size() + 1);
  for (const std::int32_t v : block) {
    rest.weight.push_back(graph.weight[v]);
    for (const std::int32_t* u = lists.begin(v); u != lists.end(v); ++u) rest.neighbor.push_back(vertex[*u]);
    std::sort(rest.neighbor.begin() + rest.begin.back(), rest.neighbor.end());
    rest.begin.push_back(static_cast<std::int32_t>(rest.neighbor.size()));
  }
}

std::vector<std::int32_t> LowDegree::followed_by(const std::vector<std::int32_t>& vertices) const {
  std::vector<std::int32_t> order = early;
  order.reserve(early.size() + vertices.size());
  for (const std::int32_t v : vertices) order.push_back(block[v]);
  return order;
}

}  // namespace graphopt
