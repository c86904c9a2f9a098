// Vertices that H determines, whatever rounding makes of their pivots.
#include <algorithm>
#include <cmath>

#include "online/problem.h"

namespace graphopt::online {
namespace {

constexpr double kFullRank = 1e-9;  // least pivot of a block of H scaled to a unit diagonal

// Whether the symmetric (n, n) block is positive definite; it is overwritten. at(i, j): entry, i >= j.
template <class At>
bool is_definite(int n, const At& at) {
  constexpr int kMost = 32;
  double lower[kMost][kMost];
  if (n > kMost) return false;
  for (int i = 0; i < n; ++i) {
    if (!(at(i, i) > 0.0)) return false;
    for (int j = 0; j <= i; ++j) {
      double sum = at(i, j) / std::sqrt(at(i, i) * at(j, j));
      for (int k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      if (i == j && !(sum > kFullRank)) return false;
      lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
    }
  }
  return true;
}

}  // namespace

// Whether the edge has information on all components of the vertex at `slot`.
bool Problem::holds(std::int32_t e, int slot) const {
  const double* const H = H_of(e);
  if (edge_kind[e] < 0) {
    const Prior& prior = *priors[edge_row[e]];
    const auto first = static_cast<std::int64_t>(prior.first[static_cast<std::size_t>(slot)]);
    const auto m = static_cast<std::int64_t>(prior.b.size());
    return is_definite(prior.first[static_cast<std::size_t>(slot) + 1] - static_cast<int>(first),
                       [&](int i, int j) { return H[(first + j) * m + first + i]; });
  }
  const EdgeKind& own = kind_of(e);
  const double* block = H;
  for (int a = 0; a < slot; ++a) {
    const int da = own.dims[static_cast<std::size_t>(a)];
    block += da * (da + 1) / 2;
    for (int b = a + 1; b < own.arity(); ++b) block += da * own.dims[static_cast<std::size_t>(b)];
  }
  return is_definite(own.dims[static_cast<std::size_t>(slot)],
                     [&](int i, int j) { return block[i * (i + 1) / 2 + j]; });
}

bool Problem::is_determined(std::int32_t start) const {
  determined_.resize(static_cast<std::size_t>(num_places()), 0);
  std::vector<std::int32_t> seen{start}, previous{-1};  // in the order of a breadth-first search
  std::vector<char> is_seen(static_cast<std::size_t>(num_places()), 0);
  is_seen[static_cast<std::size_t>(start)] = 1;
  for (std::size_t k = 0; k < seen.size(); ++k) {
    const std::int32_t v = seen[k];
    bool is_known = determined_[static_cast<std::size_t>(v)] == epoch_;
    for (std::int32_t entry = first_of[v]; entry >= 0 && !is_known; entry = entry_next[entry]) {
      const std::int32_t e = entry_edge[entry];
      if (!is_active(e) || arity(e) > 2) continue;
      const int slot = static_cast<int>(entry - first_entry[e]);
      const std::int32_t other = arity(e) == 2 ? vertices_of(e)[1 - slot] : -1;
      if ((other >= 0 && is_free(other) && is_seen[static_cast<std::size_t>(other)]) || !holds(e, slot))
        continue;
      is_known = other < 0 || !is_free(other);
      if (is_known) break;
      is_seen[static_cast<std::size_t>(other)] = 1;
      seen.push_back(other);
      previous.push_back(static_cast<std::int32_t>(k));
    }
    if (!is_known) continue;
    for (auto at = static_cast<std::int32_t>(k); at >= 0; at = previous[static_cast<std::size_t>(at)])
      determined_[static_cast<std::size_t>(seen[static_cast<std::size_t>(at)])] = epoch_;
    return true;
  }
  return false;
}

}  // namespace graphopt::online
