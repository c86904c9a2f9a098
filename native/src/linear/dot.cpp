#include "linear/dot.h"

#include <algorithm>
#include <vector>

#include "parallel/shares.h"

namespace graphopt {
namespace {

constexpr std::int64_t kPiece = 4096;          // numbers that are added in order, in lanes
constexpr std::int64_t kPiecesPerThread = 16;  // 1 MB, about 50 us
constexpr int kLanes = 16;

double piece(const double* a, const double* b, std::int64_t size) {
  double lanes[kLanes] = {}, sum = 0.0;
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < size; ++i) sum += a[i] * b[i];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return sum + lanes[0];
}

// By halves, so that rounding grows with the logarithm of the count.
double pairwise(const double* values, std::int64_t count) {
  if (count == 1) return values[0];
  return pairwise(values, count / 2) + pairwise(values + count / 2, count - count / 2);
}

}  // namespace

double dot(const double* a, const double* b, std::int64_t size) {
  if (size <= kPiece) return piece(a, b, size);
  const std::int64_t count = (size + kPiece - 1) / kPiece;
  std::vector<double> sums(static_cast<std::size_t>(count));
  const int shares = ThreadPool::instance().threads_for(count, kPiecesPerThread);
  for_each_share(count, shares, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      sums[static_cast<std::size_t>(k)] =
          piece(a + k * kPiece, b + k * kPiece, std::min(kPiece, size - k * kPiece));
  });
  return pairwise(sums.data(), count);
}

}  // namespace graphopt
