#include "edges/edge_partition.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "edges/cutting.h"
#include "edges/shares.h"

namespace graphopt::edges {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Numbers that many threads add to.
template <class T>
class Counters {
 public:
  explicit Counters(std::int64_t size) : size_(size), data_(new std::atomic<T>[at(size)]) {
    for_each_share(size, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) data_[at(i)].store(0, std::memory_order_relaxed);
    });
  }
  std::atomic<T>& operator[](std::int64_t i) const { return data_[at(i)]; }
  T add(std::int64_t i, T value) const { return data_[at(i)].fetch_add(value, std::memory_order_relaxed); }
  std::int64_t size() const { return size_; }

 private:
  std::int64_t size_;
  std::unique_ptr<std::atomic<T>[]> data_;
};

// first (num_items + 1) of runs that name only the items that occur.
std::vector<std::uint32_t> first_of_all(const Order& runs, std::int64_t num_items) {
  std::vector<std::uint32_t> first(at(num_items) + 1, runs.first.back());
  const std::int64_t num_runs = runs.keys.size();
  for_each_share(num_runs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t run = begin; run < end; ++run) {
      const std::int64_t before = run > 0 ? runs.keys[run - 1] + 1 : 0;
      for (std::int64_t item = before; item <= runs.keys[run]; ++item) first[at(item)] = runs.first[run];
    }
  });
  return first;
}

using Pair = std::pair<std::int32_t, std::int32_t>;

// Each row of `begin` is sorted, and neighbours that are the same become one with a count.
Covisibility counted(const std::vector<std::int64_t>& begin, std::vector<std::int32_t>& neighbor) {
  const std::int64_t rows = static_cast<std::int64_t>(begin.size()) - 1;
  Covisibility found;
  found.begin.assign(begin.size(), 0);
  std::vector<std::int32_t> count(neighbor.size());
  for_each_share(rows, num_shares(static_cast<std::int64_t>(neighbor.size())),
                 [&](int, std::int64_t row, std::int64_t end) {
                   for (; row < end; ++row) {
                     const std::int64_t start = begin[at(row)], stop = begin[at(row) + 1];
                     std::sort(neighbor.begin() + start, neighbor.begin() + stop);
                     std::int64_t to = start;
                     for (std::int64_t i = start; i < stop; ++i) {
                       if (to > start && neighbor[at(to) - 1] == neighbor[at(i)]) {
                         ++count[at(to) - 1];
                       } else {
                         neighbor[at(to)] = neighbor[at(i)];
                         count[at(to++)] = 1;
                       }
                     }
                     found.begin[at(row) + 1] = to - start;
                   }
                 });
  std::partial_sum(found.begin.begin(), found.begin.end(), found.begin.begin());
  found.neighbor.resize(at(found.begin.back()));
  found.count.resize(at(found.begin.back()));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t size = found.begin[at(row) + 1] - found.begin[at(row)];
    std::copy_n(neighbor.begin() + begin[at(row)], size, found.neighbor.begin() + found.begin[at(row)]);
    std::copy_n(count.begin() + begin[at(row)], size, found.count.begin() + found.begin[at(row)]);
  }
  return found;
}

Covisibility graph_of(const std::vector<std::vector<Pair>>& pairs, std::int64_t num_kept) {
  const int shares = static_cast<int>(pairs.size());
  const auto for_each_pair = [&](const auto& visit) {
    for_each_share(shares, shares, [&](int t, std::int64_t, std::int64_t) {
      for (const Pair& one : pairs[at(t)]) {
        visit(one.first, one.second);
        visit(one.second, one.first);
      }
    });
  };
  const Counters<std::int64_t> next(num_kept);
  for_each_pair([&](std::int32_t row, std::int32_t) { next.add(row, 1); });
  std::vector<std::int64_t> begin(at(num_kept) + 1, 0);
  for (std::int64_t row = 0; row < num_kept; ++row) {
    begin[at(row) + 1] = begin[at(row)] + next[row].load(std::memory_order_relaxed);
    next[row].store(begin[at(row)], std::memory_order_relaxed);
  }
  std::vector<std::int32_t> neighbor(at(begin.back()));
  for_each_pair([&](std::int32_t row, std::int32_t column) { neighbor[at(next.add(row, 1))] = column; });
  return counted(begin, neighbor);
}

}  // namespace

EdgePartition::EdgePartition(const std::int32_t* kept, int arity, const std::int32_t* eliminated,
                             std::int64_t num_edges, std::int64_t num_kept, std::int64_t num_eliminated)
    : kept_(kept),
      arity_(arity),
      num_edges_(num_edges),
      num_kept_(num_kept),
      item_(new std::int32_t[at(num_edges)]),
      order_(new std::uint32_t[at(num_edges)]) {
  const int shares = num_shares(num_edges);
  std::vector<std::int64_t> alone(at(shares) + 1, num_eliminated);
  for_each_share(num_edges, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    alone[at(t) + 1] =
        std::count_if(eliminated + begin, eliminated + end, [](std::int32_t i) { return i < 0; });
  });
  std::partial_sum(alone.begin(), alone.end(), alone.begin());
  num_items_ = alone.back();
  for_each_share(num_edges, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::int64_t next = alone[at(t)];
    for (std::int64_t e = begin; e < end; ++e)
      item_[at(e)] = eliminated[e] < 0 ? static_cast<std::int32_t>(next++) : eliminated[e];
  });
  std::vector<std::int64_t> itself(at(num_items_));
  std::iota(itself.begin(), itself.end(), std::int64_t{0});
  const Order runs = sort_by_key(item_.get(), 1, num_edges, itself.data(), num_items_, order_.get());
  first_ = first_of_all(runs, num_items_);
}

std::vector<std::int64_t> EdgePartition::weights() const {
  std::vector<std::int64_t> result(at(num_items_));
  for_each_share(num_items_, [&](std::int64_t item, std::int64_t end) {
    for (; item < end; ++item) result[at(item)] = weight(item);
  });
  return result;
}

std::vector<std::int64_t> EdgePartition::degrees() const {
  const Counters<std::int64_t> found(num_kept_);
  for_each_share(num_edges_ * arity_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      if (kept_[i] >= 0) found.add(kept_[i], 1);
  });
  std::vector<std::int64_t> result(at(num_kept_));
  for (std::int64_t i = 0; i < num_kept_; ++i) result[at(i)] = found[i].load(std::memory_order_relaxed);
  return result;
}

Covisibility EdgePartition::covisibility(std::int64_t most) const {
  std::atomic<std::int64_t> num_slots{0};
  for_each_share(num_edges_ * arity_, [&](std::int64_t begin, std::int64_t end) {
    num_slots += std::count_if(kept_ + begin, kept_ + end, [](std::int32_t i) { return i >= 0; });
  });
  const std::int64_t room = std::max(most, 60 * num_kept_);
  const std::int64_t step = std::max<std::int64_t>((num_slots + room - 1) / room, 1);
  const std::int64_t chosen = (num_items_ + step - 1) / step;
  const int shares = num_shares(std::min(num_slots.load(), room));
  std::vector<std::vector<Pair>> pairs(at(shares));
  for_each_share(chosen, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> seen;
    for (std::int64_t item = begin * step; item < end * step && item < num_items_; item += step) {
      seen.clear();
      for_each_kept(item, [&](std::int32_t one) { seen.push_back(one); });
      std::sort(seen.begin(), seen.end());
      for (std::size_t i = 1; i < seen.size(); ++i)
        if (seen[i - 1] != seen[i]) pairs[at(t)].emplace_back(seen[i - 1], seen[i]);
    }
  });
  return graph_of(pairs, num_kept_);
}

Ranks EdgePartition::slabs(const std::int32_t* place, int num_ranks) const {
  std::vector<double> mean(at(num_items_));
  for_each_share(num_items_, num_shares(num_edges_), [&](int, std::int64_t item, std::int64_t end) {
    for (; item < end; ++item) {
      std::int64_t sum = 0, count = 0;
      for_each_kept(item, [&](std::int32_t one) {
        sum += place[one];
        ++count;
      });
      mean[at(item)] = static_cast<double>(sum) / static_cast<double>(std::max<std::int64_t>(count, 1));
    }
  });
  return cut_in_order(mean, static_cast<double>(num_kept_), weights(), num_ranks);
}

Ranks EdgePartition::nearest(const std::int32_t* label, int num_ranks, double room) const {
  Ranks ranks(at(num_items_));
  std::vector<double> sure(at(num_items_));
  for_each_share(num_items_, num_shares(num_edges_), [&](int, std::int64_t item, std::int64_t end) {
    std::vector<std::int64_t> votes(at(num_ranks));
    for (; item < end; ++item) {
      std::fill(votes.begin(), votes.end(), 0);
      std::int64_t every = 0;
      for_each_kept(item, [&](std::int32_t one) {
        ++votes[at(label[one])];
        ++every;
      });
      const auto best = std::max_element(votes.begin(), votes.end());  // the first of them
      ranks[at(item)] = static_cast<std::uint16_t>(best - votes.begin());
      sure[at(item)] = static_cast<double>(*best) / static_cast<double>(std::max<std::int64_t>(every, 1));
    }
  });
  move_what_has_no_room(ranks, sure, num_ranks, room);
  return ranks;
}

void EdgePartition::move_what_has_no_room(Ranks& ranks, const std::vector<double>& sure, int num_ranks,
                                          double room) const {
  const double limit = room * static_cast<double>(num_edges_) / num_ranks;
  std::vector<std::vector<std::int64_t>> leaving(at(num_ranks));
  std::vector<double> ends(at(num_ranks));
  for_each_share(
      num_ranks, num_ranks == 1 ? 1 : num_shares(num_items_), [&](int, std::int64_t rank, std::int64_t end) {
        for (; rank < end; ++rank) {
          std::vector<std::int64_t> members;
          for (std::int64_t item = 0; item < num_items_; ++item)
            if (ranks[at(item)] == rank) members.push_back(item);
          std::int64_t load = 0, stays = 0;
          for (const std::int64_t item : members) load += weight(item);
          if (static_cast<double>(load) <= limit) {
            stays = load;
          } else {
            std::stable_sort(members.begin(), members.end(),
                             [&](std::int64_t a, std::int64_t b) { return sure[at(a)] > sure[at(b)]; });
            std::int64_t sum = 0;
            for (const std::int64_t item : members) {
              sum += weight(item);
              if (static_cast<double>(sum) <= limit)
                stays = sum;
              else
                leaving[at(rank)].push_back(item);
            }
          }
          ends[at(rank)] = std::max(limit - static_cast<double>(stays), 0.0);
        }
      });
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::int64_t sum = 0;
  for (const std::vector<std::int64_t>& of_rank : leaving)
    for (const std::int64_t item : of_rank) {
      sum += weight(item);
      const double middle = static_cast<double>(sum) - 0.5 * static_cast<double>(weight(item));
      const auto to = std::lower_bound(ends.begin(), ends.end(), middle) - ends.begin();
      ranks[at(item)] = static_cast<std::uint16_t>(std::min<std::int64_t>(to, num_ranks - 1));
    }
}

Assignment EdgePartition::assign(const std::uint16_t* ranks, int num_ranks, std::uint16_t* edges) const {
  Assignment result{{}, 0};
  const std::int64_t words = (num_ranks + 63) / 64;
  const Counters<std::int64_t> counts(num_ranks);
  const Counters<std::uint64_t> has(num_kept_ * words);
  for_each_share(num_edges_, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> own(at(num_ranks), 0);
    for (std::int64_t e = begin; e < end; ++e) {
      const std::uint16_t rank = edges[e] = ranks[item_[at(e)]];
      ++own[rank];
      const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
      for (int slot = 0; slot < arity_; ++slot) {
        const std::int32_t one = kept_[e * arity_ + slot];
        if (one < 0) continue;
        std::atomic<std::uint64_t>& word = has[one * words + rank / 64];
        if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit, std::memory_order_relaxed);
      }
    }
    for (int rank = 0; rank < num_ranks; ++rank) counts.add(rank, own[at(rank)]);
  });
  for (int rank = 0; rank < num_ranks; ++rank) result.counts.push_back(counts[rank]);
  for (std::int64_t i = 0; i < has.size(); ++i)
    for (std::uint64_t left = has[i]; left != 0; left &= left - 1) ++result.copies;
  return result;
}

}  // namespace graphopt::edges
