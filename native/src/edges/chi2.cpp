#include "edges/chi2.h"

#include <algorithm>
#include <utility>

#include "edges/evaluator.h"
#include "edges/shares.h"

namespace graphopt::edges {

void sum_chi2(const EdgePrograms& programs, const EdgeInputs& inputs, const std::uint32_t* order,
              const std::uint32_t* first, std::int64_t num_destinations, double* out) {
  const std::int64_t num_edges = num_destinations > 0 ? first[num_destinations] - first[0] : 0;
  constexpr int kSharesPerThread = 8;                  // destinations have different numbers of edges
  const int threads = num_shares(num_edges * kLanes);  // an edge is worth that many numbers
  const int shares = threads == 1 ? 1 : kSharesPerThread * threads;
  for_each_share(num_destinations, shares, [&](int, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Evaluator evaluator(programs, inputs);
    std::fill(out + begin, out + end, 0.0);
    std::int64_t destination = begin;
    for (std::int64_t at = first[begin]; at < first[end]; at += kLanes) {
      const int count = static_cast<int>(std::min<std::int64_t>(kLanes, first[end] - at));
      const double* rho = evaluator.run(order + at, count);
      for (int l = 0; l < count; ++l) {
        while (at + l >= first[destination + 1]) ++destination;
        out[destination] += rho[l];
      }
    }
  });
}

void edge_outputs(const vm::Program& program, const EdgeInputs& inputs, std::int64_t num_edges, double* out) {
  const int count_out = program.num_outputs();
  for_each_share(num_edges, num_shares(num_edges * kLanes), [&](int, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Evaluator evaluator({&program, nullptr}, inputs);
    for (std::int64_t at = begin; at < end; at += kLanes) {
      const int count = static_cast<int>(std::min<std::int64_t>(kLanes, end - at));
      std::uint32_t edges[kLanes];
      for (int l = 0; l < count; ++l) edges[l] = static_cast<std::uint32_t>(at + l);
      evaluator.run(edges, count);
      for (int k = 0; k < count_out; ++k) {
        const double* lanes = evaluator.output(k);
        for (int l = 0; l < count; ++l) out[(at + l) * count_out + k] = lanes[l];
      }
    }
  });
}

std::vector<std::int64_t> large_sums(const double* sums, const std::uint32_t* first,
                                     std::int64_t num_destinations, double bound) {
  const int shares = num_shares(num_destinations);
  std::vector<std::vector<std::int64_t>> found(static_cast<std::size_t>(shares));
  for_each_share(num_destinations, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t d = begin; d < end; ++d) {
      const std::uint32_t count = first[d + 1] - first[d];
      if (count > 0 && !(sums[d] <= bound * count)) found[static_cast<std::size_t>(t)].push_back(d);
    }
  });
  for (int t = 1; t < shares; ++t)
    found[0].insert(found[0].end(), found[static_cast<std::size_t>(t)].begin(),
                    found[static_cast<std::size_t>(t)].end());
  return std::move(found[0]);
}

}  // namespace graphopt::edges
