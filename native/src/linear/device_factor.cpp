#include "linear/device_factor.h"

#include <algorithm>

namespace graphopt {
namespace {

constexpr double kLevelSeconds = 3.5e-5;  // of a level: its dispatches and its longest chain of pivots
constexpr double kPanelSeconds = 2.3e-5;  // of 32 pivots, one after the other, and of both solves with them
constexpr double kPanelColumns = 32.0;
constexpr double kFlopsPerSecond = 5e12;
constexpr double kFull = 0.7;               // share of stored entries beyond which no ordering helps
constexpr std::int64_t kSmallRows = 64;     // of a front that one workgroup factors in shared memory
constexpr std::int64_t kMostDense = 20000;  // rows of a system that may be taken as dense: 3.2 GB

struct Sizes {
  std::int32_t parent;  // -1: a root
  double pivots, below;
};

// Fronts, children before parents. panel: seconds of 32 pivots in a row.
double seconds_of(const std::vector<Sizes>& fronts, double panel) {
  std::vector<std::int32_t> depth(fronts.size(), 0);
  std::vector<double> widest;
  double flops = 0.0;
  for (std::size_t s = fronts.size(); s-- > 0;) {
    const auto& [parent, n, m] = fronts[s];
    if (parent != -1) depth[s] = depth[static_cast<std::size_t>(parent)] + 1;
    const auto level = static_cast<std::size_t>(depth[s]);
    widest.resize(std::max(widest.size(), level + 1), 0.0);
    widest[level] = std::max(widest[level], n);
    flops += n * n * n / 3.0 + n * n * m + n * m * m;
  }
  double seconds = flops / kFlopsPerSecond;
  for (const double n : widest) seconds += kLevelSeconds + panel * n / kPanelColumns;
  return seconds;
}

std::vector<Sizes> fronts_of(const EliminationTree& tree, const std::vector<std::int32_t>& dims) {
  const std::vector<TreeNode> nodes = assembly_tree(tree, dims, kDeviceModel, false);
  const std::vector<std::int32_t> order = postorder(nodes);
  std::vector<std::int32_t> number(nodes.size(), -1);
  for (std::size_t k = 0; k < order.size(); ++k) number[order[k]] = static_cast<std::int32_t>(k);
  std::vector<Sizes> fronts;
  fronts.reserve(order.size());
  for (const std::int32_t s : order) {
    const TreeNode& node = nodes[s];
    fronts.push_back({node.parent == -1 ? -1 : number[node.parent], static_cast<double>(node.num_pivots),
                      static_cast<double>(node.num_below)});
  }
  return fronts;
}

double dense_seconds(std::int64_t dim) {
  const double n = static_cast<double>(dim);
  return n * n * n / 3.0 / kFlopsPerSecond + kLevelSeconds + kPanelSeconds * n / kPanelColumns;
}

bool is_nearly_full(const BlockPattern& pattern) {
  const double n = static_cast<double>(pattern.dim());
  return pattern.dim() <= kSmallRows ||
         static_cast<double>(pattern.values_size()) >= kFull * 0.5 * n * (n + 1.0);
}

}  // namespace

double device_seconds(const SymbolicFactor& factor) {
  std::vector<Sizes> fronts;
  fronts.reserve(factor.supernodes.size());
  for (const Supernode& node : factor.supernodes)
    fronts.push_back(
        {node.parent, static_cast<double>(node.num_pivots), static_cast<double>(node.num_below)});
  return seconds_of(fronts, kLevelSeconds);
}

std::vector<std::int32_t> levels_of(const SymbolicFactor& factor) {
  std::vector<std::int32_t> level(factor.supernodes.size(), 0);
  for (std::size_t s = level.size(); s-- > 0;) {
    const std::int32_t parent = factor.supernodes[s].parent;
    if (parent != -1) level[s] = level[static_cast<std::size_t>(parent)] + 1;
  }
  const std::int32_t deepest = level.empty() ? 0 : *std::max_element(level.begin(), level.end());
  for (std::int32_t& depth : level) depth = deepest - depth;
  return level;
}

SymbolicFactor device_factor(const BlockPattern& pattern, const std::string& ordering) {
  FactorCosts costs;
  costs.dissection_saves = 1.0 / 3.0;  // its trees have fewer levels
  costs.orders_ahead = true;
  costs.seconds = [&](const EliminationTree& tree) {
    return seconds_of(fronts_of(tree, pattern.dims()), kLevelSeconds);
  };
  costs.prefers_dense = [&](const EliminationTree& tree) {
    return pattern.dim() <= kMostDense &&
           dense_seconds(pattern.dim()) <= seconds_of(fronts_of(tree, pattern.dims()), kPanelSeconds);
  };
  const bool is_dense = ordering == "auto" && is_nearly_full(pattern);
  return SymbolicFactor(pattern, is_dense ? "dense" : ordering, kDeviceModel, costs);
}

}  // namespace graphopt
