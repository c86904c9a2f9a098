#include "edges/points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "edges/evaluator.h"
#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr double kInitialLambda = 1e-3;
constexpr double kSmallestDiagonal = 1e-9;  // of H, relative to its largest entry
constexpr double kAccept = 1e-3;            // actual over predicted gain of an accepted step
constexpr double kNothing = 1e-6;           // relative gain of a point that has arrived
constexpr std::int64_t kChunk = 64;         // points that a thread moves at a time

// The damped step, and what it promises; no step where H or b is not finite or H is zero.
double damped_step(const PointSystem& system, double lambda, double (&step)[3]) {
  const double(&h)[6] = system.h;
  const double largest = std::max({h[0], h[2], h[5]});
  double sum = h[0] + h[2] + h[5] + 2.0 * (h[1] + h[3] + h[4]);
  for (const double one : system.b) sum += one;
  std::fill(step, step + 3, 0.0);
  if (!std::isfinite(sum) || !(largest > 0.0)) return 0.0;
  const double floor = kSmallestDiagonal * largest;
  const double added[3] = {lambda * std::max(h[0], floor), lambda * std::max(h[2], floor),
                           lambda * std::max(h[5], floor)};
  const double m[6] = {h[0] + added[0], h[1], h[2] + added[1], h[3], h[4], h[5] + added[2]};
  solve_positive(m, system.b, step);
  double gain = 0.0;
  for (int i = 0; i < 3; ++i) gain += step[i] * (added[i] * step[i] + system.b[i]);
  return gain;
}

// Evaluates points of one thread.
class Evaluation {
 public:
  Evaluation(const std::vector<PointEdges>& edges, std::int64_t num_points)
      : edges_(edges), num_points_(num_points) {
    evaluators_.reserve(edges.size());  // they must not move
    for (const PointEdges& one : edges) evaluators_.emplace_back(one.programs, one.inputs);
  }

  // systems[point - base] at their present places.
  void run(const std::vector<std::int64_t>& points, std::int64_t base, PointSystem* systems) {
    for (const std::int64_t point : points) systems[point - base] = {};
    for (std::size_t g = 0; g < edges_.size(); ++g) {
      count_ = 0;
      for (const std::int64_t place : points) {
        const std::uint32_t* first = edges_[g].first + place % num_points_;
        for (std::uint32_t edge = first[0]; edge < first[1]; ++edge) {
          edge_[count_] = edge;
          place_[count_] = static_cast<std::int32_t>(place);
          if (++count_ == kLanes) add(g, base, systems);
        }
      }
      if (count_ > 0) add(g, base, systems);
    }
    for (const std::int64_t point : points) {
      double& chi2 = systems[point - base].chi2;
      if (!std::isfinite(chi2)) chi2 = std::numeric_limits<double>::infinity();
    }
  }

 private:
  void add(std::size_t g, std::int64_t base, PointSystem* systems) {
    Evaluator& evaluator = evaluators_[g];
    const double* rho = evaluator.run(edge_, count_, place_);
    for (int l = 0; l < count_; ++l) systems[place_[l] - base].chi2 += rho[l];
    for (int k = 0; k < 6; ++k) {
      const double* entry = evaluator.output(edges_[g].h + k);
      for (int l = 0; l < count_; ++l) systems[place_[l] - base].h[k] += entry[l];
    }
    for (int k = 0; k < 3; ++k) {
      const double* entry = evaluator.output(edges_[g].b + k);
      for (int l = 0; l < count_; ++l) systems[place_[l] - base].b[k] += entry[l];
    }
    count_ = 0;
  }

  const std::vector<PointEdges>& edges_;
  std::int64_t num_points_;
  std::vector<Evaluator> evaluators_;
  std::uint32_t edge_[kLanes] = {};
  std::int32_t place_[kLanes] = {};
  int count_ = 0;
};

// How one point's search goes.
struct Search {
  double lambda = kInitialLambda, growth = 2.0;
  double step[3] = {}, before[3] = {};
  double gain = 0.0;
};

// Take the step or go back, as its gain says.
void judge(Search& search, const PointSystem& tried, PointSystem& system, double* place, bool& falls) {
  const double ratio =
      search.gain > 0.0 ? (system.chi2 - tried.chi2) / search.gain : -std::numeric_limits<double>::infinity();
  if (ratio > kAccept) {
    falls = system.chi2 - tried.chi2 > kNothing * system.chi2;
    system = tried;
    const double bent = 2.0 * ratio - 1.0;
    search.lambda *= std::max(1.0 / 9.0, 1.0 - bent * bent * bent);
    search.growth = 2.0;
    return;
  }
  falls = search.gain > kNothing * system.chi2;
  std::copy(search.before, search.before + 3, place);
  search.lambda *= search.growth;
  search.growth *= 2.0;
}

}  // namespace

void minimise_points(const std::vector<PointEdges>& edges, std::int64_t num_points, double* points,
                     std::int64_t num_places, const PointRounds& rounds, PointSystem* systems, bool* falls) {
  if (num_places == 0) return;
  std::int64_t num_edges = 0;
  for (const PointEdges& one : edges) num_edges += one.first[num_points] * (num_places / num_points);
  const int threads = num_shares(num_edges * kLanes * std::max(1, rounds.rounds * rounds.iterations));
  constexpr int kSharesPerThread = 4;
  const int shares = threads == 1 ? 1 : kSharesPerThread * threads;
  for_each_share(num_places, shares, [&](int, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Evaluation evaluation(edges, num_points);
    std::vector<PointSystem> tried(kChunk);
    std::vector<Search> searches(kChunk);
    std::vector<std::int64_t> taking_part;
    for (std::int64_t first = begin; first < end; first += kChunk) {
      taking_part.clear();
      for (std::int64_t k = first; k < std::min(first + kChunk, end); ++k) taking_part.push_back(k);
      evaluation.run(taking_part, 0, systems);
      for (const std::int64_t k : taking_part) falls[k] = true;
      for (int round = 0; round < rounds.rounds && !taking_part.empty(); ++round) {
        for (const std::int64_t k : taking_part) searches[k - first] = {};
        for (int iteration = 0; iteration < rounds.iterations; ++iteration) {
          for (const std::int64_t k : taking_part) {
            Search& search = searches[k - first];
            search.gain = damped_step(systems[k], search.lambda, search.step);
            std::copy(points + 3 * k, points + 3 * k + 3, search.before);
            for (int i = 0; i < 3; ++i) points[3 * k + i] += search.step[i];
          }
          evaluation.run(taking_part, first, tried.data());
          for (const std::int64_t k : taking_part)
            judge(searches[k - first], tried[k - first], systems[k], points + 3 * k, falls[k]);
        }
        const auto stops = [&](std::int64_t k) { return !falls[k] || !(systems[k].chi2 < rounds.bound[k]); };
        taking_part.erase(std::remove_if(taking_part.begin(), taking_part.end(), stops), taking_part.end());
      }
    }
  });
}

}  // namespace graphopt::edges
