#include "linear/ordering.h"

#include <metis.h>

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <numeric>

#include "linear/dissection.h"
#include "linear/errors.h"
#include "linear/low_degree.h"
#include "parallel/stopping.h"
#include "parallel/thread_pool.h"

namespace graphopt {
namespace {

// Dissection takes 3.5 to 8 microseconds per block on one core, minimum degree once more, of what is left
// when blocks of few neighbours are eliminated, half of one. Either pays if ten factorisations, by as much
// faster as dissection makes them, save more than that; both kinds of dissection if the better one of two, a
// tenth faster, does.
constexpr double kDissectionSeconds = 3.5e-6, kBothSeconds = 3.3e-5, kLowDegreeSeconds = 0.5e-6;
constexpr double kFactorisations = 10.0;
// Of a factorisation, of graphs of many blocks.
constexpr double kManySaved = 1.0 / 3.0;

// Blocks from which on METIS, which works on one core, takes longer than dissection on several; and from
// which on an ordering may take longer than somebody who wants to stop should wait.
constexpr int kManyBlocks = 20000;
constexpr int kFewBlocks = 500;   // that METIS orders in the time that a thread takes to start
constexpr int kLeafBlocks = 120;  // of a piece that minimum degree orders

std::vector<std::int32_t> natural_order(const BlockGraph& graph) {
  std::vector<std::int32_t> order(graph.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::int32_t> amd_order(const BlockGraph& graph) {
  return minimum_degree(graph.begin.data(), graph.neighbor.data(), graph.size());
}

std::vector<std::int32_t> amd_order_of(const LowDegree& low) {
  if (low.rest.neighbor.empty()) return low.followed_by(natural_order(low.rest));
  return low.followed_by(amd_order(low.rest));
}

std::vector<std::int32_t> metis_order_of(const LowDegree& low) {
  const BlockGraph& graph = low.rest;
  if (graph.neighbor.empty()) return low.followed_by(natural_order(graph));
  std::lock_guard<std::mutex> lock(metis_mutex());
  idx_t n = graph.size();
  std::vector<idx_t> begin(graph.begin.begin(), graph.begin.end());
  std::vector<idx_t> neighbor(graph.neighbor.begin(), graph.neighbor.end());
  std::vector<idx_t> weight(graph.weight.begin(), graph.weight.end());
  std::vector<idx_t> perm(n), inverse(n);
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;
  options[METIS_OPTION_NUMBERING] = 0;
  const int status =
      METIS_NodeND(&n, begin.data(), neighbor.data(), weight.data(), options, perm.data(), inverse.data());
  if (status == METIS_ERROR_MEMORY) throw std::bad_alloc();
  // GCOVR_EXCL_START - METIS refuses wrong input alone, and this is right
  if (status != METIS_OK)
    throw LinearStateError("METIS_NodeND failed with status " + std::to_string(status) + ".");
  // GCOVR_EXCL_STOP
  return low.followed_by(std::vector<std::int32_t>(perm.begin(), perm.end()));
}

std::vector<std::int32_t> metis_order(const BlockGraph& graph) { return metis_order_of(LowDegree(graph)); }

// parent of each step (Liu 1990), with path compression.
std::vector<std::int32_t> tree_parents(const BlockGraph& graph, const std::vector<std::int32_t>& order,
                                       const std::vector<std::int32_t>& inverse) {
  const int n = graph.size();
  std::vector<std::int32_t> parent(n, -1), ancestor(n, -1);
  for (int k = 0; k < n; ++k) {
    for (int p = graph.begin[order[k]]; p < graph.begin[order[k] + 1]; ++p) {
      int i = inverse[graph.neighbor[p]];
      while (i != -1 && i < k) {
        const int next = ancestor[i];
        ancestor[i] = k;
        if (next == -1) parent[i] = k;
        i = next;
      }
    }
  }
  return parent;
}

std::vector<std::int32_t> postorder(const std::vector<std::int32_t>& parent) {
  const int n = static_cast<int>(parent.size());
  std::vector<std::int32_t> head(n, -1), next(n, -1), post, stack;
  post.reserve(n);
  for (int j = n - 1; j >= 0; --j) {
    if (parent[j] == -1) continue;
    next[j] = head[parent[j]];
    head[parent[j]] = j;
  }
  for (int root = 0; root < n; ++root) {
    if (parent[root] != -1) continue;
    stack.push_back(root);
    while (!stack.empty()) {
      const int j = stack.back();
      const int child = head[j];
      if (child == -1) {
        post.push_back(j);
        stack.pop_back();
      } else {
        head[j] = next[child];
        stack.push_back(child);
      }
    }
  }
  return post;
}

std::vector<std::int32_t> invert(const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> inverse(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) inverse[order[k]] = static_cast<std::int32_t>(k);
  return inverse;
}

// Row counts per column by counting, for each row, the leaves of its row subtree and their meeting points.
class ColumnCounter {
 public:
  ColumnCounter(const BlockGraph& graph, EliminationTree& tree)
      : graph_(graph),
        tree_(tree),
        n_(graph.size()),
        first_(n_, -1),
        max_first_(n_, -1),
        previous_leaf_(n_, -1),
        ancestor_(n_) {
    std::iota(ancestor_.begin(), ancestor_.end(), 0);
  }

  void count() {
    auto& count = tree_.row_count;
    count.assign(n_, 0);
    for (int k = 0; k < n_; ++k) {
      if (first_[k] == -1) count[k] = weight(k);
      for (int j = k; j != -1 && first_[j] == -1; j = tree_.parent[j]) first_[j] = k;
    }
    for (int j = 0; j < n_; ++j) {
      const int parent = tree_.parent[j];
      if (parent != -1) count[parent] -= weight(j);
      const int block = tree_.perm[j];
      for (int p = graph_.begin[block]; p < graph_.begin[block + 1]; ++p)
        add_row(tree_.inverse[graph_.neighbor[p]], j);
      if (parent != -1) ancestor_[j] = parent;
    }
    for (int j = 0; j < n_; ++j) {
      if (tree_.parent[j] != -1) count[tree_.parent[j]] += count[j];
    }
  }

 private:
  int weight(int step) const { return graph_.weight[tree_.perm[step]]; }

  // Row i > j has an entry in column j of A; is j a new leaf of i's row subtree?
  void add_row(int i, int j) {
    if (i <= j || first_[j] <= max_first_[i]) return;
    max_first_[i] = first_[j];
    const int previous = previous_leaf_[i];
    previous_leaf_[i] = j;
    tree_.row_count[j] += weight(i);
    if (previous == -1) return;
    int meet = previous;
    while (meet != ancestor_[meet]) meet = ancestor_[meet];
    for (int s = previous; s != meet;) {
      const int up = ancestor_[s];
      ancestor_[s] = meet;
      s = up;
    }
    tree_.row_count[meet] -= weight(i);
  }

  const BlockGraph& graph_;
  EliminationTree& tree_;
  const int n_;
  std::vector<std::int32_t> first_, max_first_, previous_leaf_, ancestor_;
};

}  // namespace

BlockGraph::BlockGraph(const BlockPattern& pattern)
    : begin(pattern.num_blocks() + 1, 0), weight(pattern.dims()) {
  const int n = pattern.num_blocks();
  if (2 * (pattern.num_stored_blocks() - n) > std::numeric_limits<std::int32_t>::max()) {
    // GCOVR_EXCL_START - a pattern of 2^30 blocks alone takes 8 GiB, its values at least as much
    throw LinearShapeError(
        "The pattern has too many blocks for a sparse factorisation (2^30 off the diagonal).");
    // GCOVR_EXCL_STOP
  }
  for (int col = 0; col < n; ++col) {
    for (std::int64_t k = pattern.column_begin(col); k < pattern.diagonal(col); ++k) {
      ++begin[col + 1];
      ++begin[pattern.row(k) + 1];
    }
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  neighbor.resize(begin.back());
  stored.resize(begin.back());
  std::vector<std::int32_t> fill(begin.begin(), begin.end() - 1);
  throw_if_stopped();
  for (int col = 0; col < n; ++col) {  // ascending: rows of a column first, then the columns of a row
    for (std::int64_t k = pattern.column_begin(col); k < pattern.diagonal(col); ++k) {
      const std::int32_t row = pattern.row(k);
      stored[fill[col]] = stored[fill[row]] = static_cast<std::int32_t>(k);
      neighbor[fill[col]++] = row;
      neighbor[fill[row]++] = col;
    }
  }
}

EliminationTree eliminate(const BlockGraph& graph, const std::vector<std::int32_t>& order) {
  const int n = graph.size();
  const std::vector<std::int32_t> parent = tree_parents(graph, order, invert(order));
  const std::vector<std::int32_t> post = postorder(parent);
  const std::vector<std::int32_t> step_of = invert(post);
  EliminationTree tree;
  tree.perm.resize(n);
  tree.parent.resize(n);
  for (int k = 0; k < n; ++k) {
    tree.perm[k] = order[post[k]];
    tree.parent[k] = parent[post[k]] == -1 ? -1 : step_of[parent[post[k]]];
  }
  tree.inverse = invert(tree.perm);
  ColumnCounter(graph, tree).count();
  for (int k = 0; k < n; ++k) {
    double rows = static_cast<double>(tree.row_count[k]);
    for (int i = 0; i < graph.weight[tree.perm[k]]; ++i, rows -= 1.0) {
      tree.flops += rows * rows;
      tree.nonzeros += rows;
    }
  }
  return tree;
}

namespace {

using Order = std::vector<std::int32_t> (*)(const BlockGraph& graph);

// On a thread of its own where it may take long and somebody may want to stop.
EliminationTree eliminate_in(Order order, const BlockGraph& graph) {
  if (Watch::current() == nullptr || graph.size() < kManyBlocks) return eliminate(graph, order(graph));
  const auto own = std::make_shared<const BlockGraph>(graph);
  const std::function<EliminationTree()> task = [own, order] { return eliminate(*own, order(*own)); };
  return stoppable(begin_apart(task));
}

EliminationTree dissected(const BlockGraph& graph) {
  Dissection dissection(graph);
  dissection.cut(kLeafBlocks);
  return eliminate(graph, dissection.order());
}

EliminationTree best_order(const BlockGraph& graph, std::string& name, const FactorCosts& costs) {
  const int n = graph.size();
  std::shared_ptr<const LowDegree> low;
  std::future<std::vector<std::int32_t>> cut;  // METIS's order, which is often wanted
  const bool has_threads = ThreadPool::instance().num_threads() > 1;
  if (costs.orders_ahead && has_threads && n >= kFewBlocks && n < kManyBlocks) {
    low = std::make_shared<const LowDegree>(graph);
    const std::function<std::vector<std::int32_t>()> task = [low] { return metis_order_of(*low); };
    cut = begin_apart(task);
  }
  EliminationTree best = eliminate_in(amd_order, graph);
  name = "amd";
  double seconds = costs.seconds(best);
  const auto consider = [&](EliminationTree tree, const char* its_name) {
    const double own = costs.seconds(tree);
    if (own >= seconds) return;
    best = std::move(tree);
    seconds = own;
    name = its_name;
  };
  const auto pays = [&](double saved, double per_block, int blocks) {
    return kFactorisations * saved * seconds > per_block * blocks;
  };
  if (n >= kManyBlocks) {
    if (pays(kManySaved, kDissectionSeconds, n)) consider(dissected(graph), "dissection");
  } else if (pays(costs.dissection_saves, kLowDegreeSeconds, n)) {
    if (low == nullptr) low = std::make_shared<const LowDegree>(graph);
    consider(eliminate(graph, amd_order_of(*low)), "amd");
    if (pays(costs.dissection_saves, kDissectionSeconds, low->rest.size()))
      consider(eliminate(graph, cut.valid() ? stoppable(std::move(cut)) : metis_order_of(*low)), "metis");
    if (seconds > kBothSeconds * n) consider(dissected(graph), "dissection");
  }
  if (!costs.prefers_dense(best)) return best;
  name = "dense";
  return eliminate(graph, natural_order(graph));
}

}  // namespace

EliminationTree order_blocks(const BlockGraph& graph, std::string& name, const FactorCosts& costs) {
  const bool is_trivial = name == "natural" || graph.size() < 2 || graph.neighbor.empty();
  if (name == "dense" || is_trivial) {
    if (name == "auto") name = "natural";
    return eliminate(graph, natural_order(graph));
  }
  if (name == "auto") return best_order(graph, name, costs);
  if (name == "amd") return eliminate_in(amd_order, graph);
  if (name == "metis") return eliminate_in(metis_order, graph);
  if (name == "dissection") return dissected(graph);
  throw LinearShapeError("The ordering is '" + name +
                         "', expected auto, amd, metis, dissection, natural or dense.");
}

std::mutex& metis_mutex() {
  static std::mutex& guard = *new std::mutex;  // a call that nobody waits for may outlive static objects
  return guard;
}

}  // namespace graphopt
