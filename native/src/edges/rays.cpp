#include "edges/rays.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "edges/evaluator.h"
#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr int kNewtonSteps = 8;
constexpr double kArrived = 1e-9;     // largest Newton step relative to the spread of the points
constexpr double kConverged = 1e-6;   // last Newton step relative to the distance
constexpr double kProbe = 1e-3;       // s relative to the spread of the points
constexpr double kConsistent = 0.05;  // relative difference of the distances that s and -s give
constexpr double kParallel = 1e-12;   // added to the normal equations of rays that meet
constexpr double kLift = 1e-9;        // of H of rank 2, relative to its trace

double trace(const PointSystem& one) { return one.h[0] + one.h[2] + one.h[5]; }

// The pseudo-inverse of H of rank 2 times b; zero where there is none.
void least_step(const PointSystem& one, double (&step)[3]) {
  std::fill(step, step + 3, 0.0);
  const double size = trace(one);
  if (!std::isfinite(size + one.b[0] + one.b[1] + one.b[2]) || !(size > 0.0)) return;
  const double added = kLift * size;
  const double lifted[6] = {one.h[0] + added, one.h[1], one.h[2] + added,
                            one.h[3],         one.h[4], one.h[5] + added};
  solve_positive(lifted, one.b, step);
}

// The kernel of H of rank 2: the largest column of its adjugate; zero where there is none.
void null_direction(const PointSystem& one, double (&ray)[3]) {
  const double rows[3][3] = {
      {one.h[0], one.h[1], one.h[3]}, {one.h[1], one.h[2], one.h[4]}, {one.h[3], one.h[4], one.h[5]}};
  double largest = 0.0;
  std::fill(ray, ray + 3, 0.0);
  for (int k = 0; k < 3; ++k) {
    const double *a = rows[(k + 1) % 3], *b = rows[(k + 2) % 3];
    const double crossed[3] = {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                               a[0] * b[1] - a[1] * b[0]};
    const double size =
        std::sqrt(crossed[0] * crossed[0] + crossed[1] * crossed[1] + crossed[2] * crossed[2]);
    if (!(size > largest) || !std::isfinite(size)) continue;
    largest = size;
    for (int i = 0; i < 3; ++i) ray[i] = crossed[i] / size;
  }
}

// Edges of one thread, as many as there are lanes at a time.
class Search {
 public:
  Search(const PointEdges& edges, double* points, double spread)
      : edges_(edges), evaluator_(edges.programs, edges.inputs), points_(points), spread_(spread) {}

  void run(std::int64_t first, int count, const Rays& out) {
    count_ = count;
    for (int l = 0; l < count; ++l) edge_[l] = static_cast<std::uint32_t>(first + l);
    double *x = points_ + 3 * first, size[kLanes], left[kLanes], ray[kLanes][3], arrived[3 * kLanes];
    go_to_ray(x, left);
    linearize();
    for (int l = 0; l < count; ++l) {
      null_direction(system_[l], ray[l]);
      size[l] = std::sqrt(trace(system_[l]));
    }
    std::copy(x, x + 3 * count, arrived);
    double ratio[2][kLanes];  // of |J| here and at s, -s along the ray
    const double probe = kProbe * spread_;
    for (int side = 0; side < 2; ++side) {
      for (int k = 0; k < 3 * count; ++k)
        x[k] = arrived[k] + (side == 0 ? probe : -probe) * ray[k / 3][k % 3];
      linearize();
      for (int l = 0; l < count; ++l) ratio[side][l] = size[l] / std::sqrt(trace(system_[l]));
    }
    for (int l = 0; l < count; ++l) {
      const double slope = ratio[0][l] - ratio[1][l], distance = 2.0 * probe / slope;
      const bool known = std::abs(ratio[0][l] + ratio[1][l] - 2.0) <= kConsistent * std::abs(slope) &&
                         std::isfinite(distance) && left[l] <= kConverged * std::abs(distance);
      out.known[first + l] = known;
      out.distance[first + l] = known ? std::abs(distance) : 0.0;
      for (int i = 0; i < 3; ++i) {
        out.centre[3 * (first + l) + i] = known ? arrived[3 * l + i] - distance * ray[l][i] : 0.0;
        out.direction[3 * (first + l) + i] = !known ? 0.0 : distance > 0.0 ? ray[l][i] : -ray[l][i];
      }
    }
  }

 private:
  // Gauss-Newton steps of least norm; left: length of each point's last one.
  void go_to_ray(double* x, double (&left)[kLanes]) {
    bool moves[kLanes];
    std::fill(moves, moves + count_, true);
    for (int k = 0; k < kNewtonSteps && std::any_of(moves, moves + count_, [](bool one) { return one; });
         ++k) {
      linearize();
      for (int l = 0; l < count_; ++l) {
        if (!moves[l]) continue;
        double step[3], largest = 0.0;
        least_step(system_[l], step);
        left[l] = std::sqrt(step[0] * step[0] + step[1] * step[1] + step[2] * step[2]);
        for (int i = 0; i < 3; ++i) {
          x[3 * l + i] += step[i];
          largest = std::max(largest, std::abs(step[i]));
        }
        moves[l] = !(largest <= kArrived * spread_);
      }
    }
  }

  void linearize() {
    evaluator_.run(edge_, count_);
    for (int k = 0; k < 6; ++k) {
      const double* entry = evaluator_.output(edges_.h + k);
      for (int l = 0; l < count_; ++l) system_[l].h[k] = entry[l];
    }
    for (int k = 0; k < 3; ++k) {
      const double* entry = evaluator_.output(edges_.b + k);
      for (int l = 0; l < count_; ++l) system_[l].b[k] = entry[l];
    }
  }

  const PointEdges& edges_;
  Evaluator evaluator_;
  double* points_;
  double spread_;
  std::uint32_t edge_[kLanes] = {};
  PointSystem system_[kLanes];
  int count_ = 0;
};

}  // namespace

void viewing_rays(const PointEdges& edges, std::int64_t num_edges, double* points, double spread,
                  const Rays& out) {
  const int shares = num_shares(num_edges * kLanes * kNewtonSteps);
  for_each_share(num_edges, shares, [&](int, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Search search(edges, points, spread);
    for (std::int64_t first = begin; first < end; first += kLanes)
      search.run(first, static_cast<int>(std::min<std::int64_t>(kLanes, end - first)), out);
  });
}

void candidate_places(const std::vector<SeenRays>& rays, std::int64_t num_points,
                      const std::vector<double>& fractions, double* out) {
  struct Sums {
    double normal[6] = {}, right[3] = {};  // sum of I - r r', of (I - r r') c
    double centre[3] = {}, direction[3] = {}, distance = 0.0;
    int count = 0;
  };
  std::vector<Sums> sums(static_cast<std::size_t>(num_points));
  for (const SeenRays& one : rays)
    for (std::int64_t k = 0; k < one.size; ++k) {
      if (!one.known[k]) continue;
      Sums& sum = sums[static_cast<std::size_t>(one.point[k])];
      const double *c = one.centre + 3 * k, *r = one.direction + 3 * k;
      const double along = r[0] * c[0] + r[1] * c[1] + r[2] * c[2];
      for (int j = 0, at = 0; j < 3; ++j) {
        for (int i = 0; i <= j; ++i, ++at) sum.normal[at] += (i == j) - r[i] * r[j];
        sum.right[j] += c[j] - along * r[j];
        sum.centre[j] += c[j];
        sum.direction[j] += r[j];
      }
      sum.distance += one.distance[k];
      ++sum.count;
    }
  for (std::int64_t p = 0; p < num_points; ++p) {
    Sums& sum = sums[static_cast<std::size_t>(p)];
    for (const int k : {0, 2, 5}) sum.normal[k] += kParallel;
    double meeting[3];
    solve_positive(sum.normal, sum.right, meeting);
    const double count = sum.count, nothing = std::numeric_limits<double>::quiet_NaN();
    for (int i = 0; i < 3; ++i) {
      out[3 * p + i] = sum.count < 2 ? nothing : meeting[i];
      for (std::size_t f = 0; f < fractions.size(); ++f)
        out[3 * (static_cast<std::int64_t>(f + 1) * num_points + p) + i] =
            sum.centre[i] / count + fractions[f] * (sum.distance / count) * (sum.direction[i] / count);
    }
  }
}

void mark_front(const std::vector<SeenRays>& rays, std::int64_t num_points, const double* places,
                std::int64_t num_places, bool* front) {
  std::fill(front, front + num_places, true);
  for (const SeenRays& one : rays)
    for (std::int64_t k = 0; k < one.size; ++k) {
      if (!one.known[k]) continue;
      const double *c = one.centre + 3 * k, *r = one.direction + 3 * k;
      for (std::int64_t place = one.point[k]; place < num_places; place += num_points) {
        const double* x = places + 3 * place;
        const double depth = (x[0] - c[0]) * r[0] + (x[1] - c[1]) * r[1] + (x[2] - c[2]) * r[2];
        if (depth <= 0.0) front[place] = false;
      }
    }
}

}  // namespace graphopt::edges
