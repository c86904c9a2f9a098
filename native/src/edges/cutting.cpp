#include "edges/cutting.h"

#include <algorithm>
#include <numeric>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr std::int64_t kBins = 1 << 16;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Cut {
 public:
  Cut(std::int64_t total, int num_pieces)
      : total_(total > 0 ? static_cast<double>(total) : 1.0), num_pieces_(num_pieces) {}
  std::uint16_t piece(double middle) const {
    const auto found = static_cast<std::int64_t>(middle * num_pieces_ / total_);
    return static_cast<std::uint16_t>(std::min<std::int64_t>(found, num_pieces_ - 1));
  }

 private:
  double total_;
  int num_pieces_;
};

class Bins {
 public:
  explicit Bins(double width) : scale_(static_cast<double>(kBins) / std::max(width, 1.0)) {}
  std::int64_t of(double key) const {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(key * scale_), 0, kBins - 1);
  }

 private:
  double scale_;
};

// (kBins + 1,) weight before each bin.
std::vector<std::int64_t> weight_before(const std::vector<double>& key, const Bins& bins,
                                        const std::vector<std::int64_t>& weight) {
  const std::int64_t size = static_cast<std::int64_t>(key.size());
  const int shares = num_shares(size);
  std::vector<std::vector<std::int64_t>> sums(at(shares));
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    sums[at(t)].assign(at(kBins), 0);
    for (std::int64_t i = begin; i < end; ++i) sums[at(t)][at(bins.of(key[at(i)]))] += weight[at(i)];
  });
  std::vector<std::int64_t> before(at(kBins) + 1, 0);
  for (std::int64_t bin = 0; bin < kBins; ++bin) {
    before[at(bin) + 1] = before[at(bin)];
    for (const auto& own : sums) before[at(bin) + 1] += own[at(bin)];
  }
  return before;
}

}  // namespace

std::vector<std::uint16_t> cut_in_order(const std::vector<double>& key, double width,
                                        const std::vector<std::int64_t>& weight, int num_pieces) {
  const Bins bins(width);
  const std::vector<std::int64_t> before = weight_before(key, bins, weight);
  const Cut cut(before.back(), num_pieces);
  const auto first_piece = [&](std::int64_t bin) { return cut.piece(static_cast<double>(before[at(bin)])); };
  const std::int64_t size = static_cast<std::int64_t>(key.size());
  const int shares = num_shares(size);
  std::vector<std::uint16_t> pieces(at(size));
  std::vector<std::vector<std::int64_t>> undecided(at(shares));  // in bins that are cut
  for_each_share(size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t bin = bins.of(key[at(i)]);
      pieces[at(i)] = first_piece(bin);
      if (pieces[at(i)] != first_piece(bin + 1)) undecided[at(t)].push_back(i);
    }
  });
  std::vector<std::int64_t> row;
  for (const auto& own : undecided) row.insert(row.end(), own.begin(), own.end());
  std::stable_sort(row.begin(), row.end(),
                   [&](std::int64_t a, std::int64_t b) { return key[at(a)] < key[at(b)]; });
  std::int64_t bin = -1, sum = 0;
  for (const std::int64_t i : row) {
    if (const std::int64_t own = bins.of(key[at(i)]); own != bin) {
      bin = own;
      sum = before[at(bin)];
    }
    sum += weight[at(i)];
    pieces[at(i)] = cut.piece(static_cast<double>(sum) - 0.5 * static_cast<double>(weight[at(i)]));
  }
  return pieces;
}

}  // namespace graphopt::edges
