#include "edges/filling.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr int kNone = -1;

template <class Index>
bool fill_slot(const SlotIds& slot, std::int64_t i, std::int64_t end, std::int64_t* out, std::int64_t arity) {
  bool fits = true;
  for (; i < end; ++i) {
    Index at = 0;
    std::memcpy(&at, slot.index + i * slot.stride, sizeof at);
    const bool inside = at >= 0 && at < slot.size;
    fits &= inside;
    if (inside) out[i * arity] = slot.table == nullptr ? slot.first + at : slot.table[at];
  }
  return fits;
}

template <class Visit>
void visit_keypoints(const KeypointLists& lists, std::int64_t image, const Visit& visit) {
  const char* keypoint = reinterpret_cast<const char*>(lists.addresses[image]);
  for (std::int64_t k = 0; k < lists.counts[image]; ++k, keypoint += lists.stride) {
    std::int64_t id = 0;
    std::memcpy(&id, keypoint + lists.id_offset, sizeof id);
    if (id != kNone) visit(id, keypoint);
  }
}

// Row of an id among ascending ones, by a table where they are dense; kNone: it is not there.
class RowOfId {
 public:
  RowOfId(const std::int64_t* ids, std::int64_t size) : ids_(ids), size_(size) {
    constexpr std::int64_t kDense = 16, kSmall = 1'000'000;
    if (size == 0 || ids[0] < 0 || ids[size - 1] >= kDense * size + kSmall) return;
    table_.assign(static_cast<std::size_t>(ids[size - 1]) + 1, kNone);
    for (std::int64_t row = 0; row < size; ++row)
      table_[static_cast<std::size_t>(ids[row])] = static_cast<std::int32_t>(row);
  }

  std::int32_t operator()(std::int64_t id) const {
    if (!table_.empty()) {
      const bool inside = id >= 0 && id < static_cast<std::int64_t>(table_.size());
      return inside ? table_[static_cast<std::size_t>(id)] : kNone;
    }
    const std::int64_t* const found = std::lower_bound(ids_, ids_ + size_, id);
    return found != ids_ + size_ && *found == id ? static_cast<std::int32_t>(found - ids_) : kNone;
  }

 private:
  const std::int64_t* ids_;
  std::int64_t size_;
  std::vector<std::int32_t> table_;
};

std::int64_t num_keypoints(const KeypointLists& lists) {
  return std::accumulate(lists.counts, lists.counts + lists.images, std::int64_t{0});
}

// Images that hold about equal numbers of keypoints: task(t, begin, end) for t = 0 .. shares - 1.
template <class Task>
void for_each_part(const KeypointLists& lists, int shares, const Task& task) {
  std::vector<std::int64_t> before(static_cast<std::size_t>(lists.images) + 1, 0);
  for (std::int64_t i = 0; i < lists.images; ++i)
    before[static_cast<std::size_t>(i) + 1] = before[static_cast<std::size_t>(i)] + lists.counts[i];
  const auto image_of = [&](std::int64_t keypoint) {
    return std::lower_bound(before.begin(), before.end(), keypoint) - before.begin();
  };
  const std::int64_t total = before.back();
  for_each_share(total, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    task(t, begin == 0 ? 0 : image_of(begin), end == total ? lists.images : image_of(end));
  });
}

}  // namespace

bool fill_edges(const std::vector<SlotIds>& slots, std::int64_t size, std::int64_t* vertices) {
  constexpr std::int64_t kAtOnce = 512;  // rows of which all slots are written while they are in the cache
  const auto arity = static_cast<std::int64_t>(slots.size());
  std::atomic<bool> fits{true};
  for_each_share(size, [&](std::int64_t begin, std::int64_t last) {
    bool own = true;
    for (std::int64_t i = begin; i < last; i += kAtOnce) {
      const std::int64_t end = std::min(i + kAtOnce, last);
      for (std::int64_t s = 0; s < arity; ++s) {
        const SlotIds& slot = slots[static_cast<std::size_t>(s)];
        own &= slot.is_wide ? fill_slot<std::int64_t>(slot, i, end, vertices + s, arity)
                            : fill_slot<std::int32_t>(slot, i, end, vertices + s, arity);
      }
    }
    if (!own) fits = false;
  });
  return fits;
}

std::vector<std::int64_t> count_observations(const KeypointLists& lists) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(lists.images) + 1, 0);
  for_each_part(lists, num_shares(num_keypoints(lists)), [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t seen = 0;
      visit_keypoints(lists, i, [&](std::int64_t, const char*) { ++seen; });
      starts[static_cast<std::size_t>(i) + 1] = seen;
    }
  });
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  return starts;
}

std::int64_t read_observations(const KeypointLists& lists, const std::vector<std::int64_t>& starts,
                               const std::int64_t* ids, std::int64_t num_ids, const Observations& out) {
  const RowOfId row_of(ids, num_ids);
  const int shares = num_shares(num_keypoints(lists));
  std::vector<std::vector<std::int32_t>> lengths(static_cast<std::size_t>(shares));
  std::atomic<std::int64_t> lost{kNoneLost};
  std::atomic<bool> fits{true};
  for_each_part(lists, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t>& length = lengths[static_cast<std::size_t>(t)];
    length.assign(static_cast<std::size_t>(num_ids), 0);
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t at = starts[static_cast<std::size_t>(i)];
      const std::int64_t end_of_image = starts[static_cast<std::size_t>(i) + 1];
      visit_keypoints(lists, i, [&](std::int64_t id, const char* keypoint) {
        if (at++ >= end_of_image) return;
        const std::int64_t row = at - 1;
        const std::int32_t point = row_of(id);
        if (point == kNone)
          lost = id;
        else
          ++length[static_cast<std::size_t>(point)];
        out.image[row] = static_cast<std::int32_t>(i);
        out.point[row] = point;
        std::memcpy(out.pixel + 2 * row, keypoint, 2 * sizeof(double));
      });
      if (at != end_of_image) fits = false;
    }
  });
  if (!fits) return kWrongStarts;
  for_each_share(num_ids, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      out.track_length[k] = 0;
      for (const std::vector<std::int32_t>& length : lengths)
        out.track_length[k] += length.empty() ? 0 : length[static_cast<std::size_t>(k)];
    }
  });
  return lost;
}

std::int64_t read_tracks(const Tracks& in, const Observations& out, std::int64_t* counts) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(in.images));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return in.image_ids[a] < in.image_ids[b]; });
  std::vector<std::int64_t> ids;
  for (const std::int32_t row : order) ids.push_back(in.image_ids[row]);
  const RowOfId place_of(ids.data(), in.images);
  const int shares = num_shares(in.size);
  std::vector<std::vector<std::int64_t>> seen(static_cast<std::size_t>(shares));
  std::vector<std::int64_t> lost(static_cast<std::size_t>(shares), -1);
  for_each_share(in.size, shares, [&](int t, std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> own(static_cast<std::size_t>(in.images), 0);
    std::int64_t point = std::upper_bound(in.start, in.start + in.points + 1, begin) - in.start - 1;
    for (std::int64_t k = begin; k < end; ++k) {
      while (in.start[point + 1] <= k) ++point;
      const std::int32_t place = place_of(in.elements[2 * k]);
      const std::int32_t row = place == kNone ? kNone : order[static_cast<std::size_t>(place)];
      const std::int64_t number = in.elements[2 * k + 1];
      if (row < 0 || number < 0 || number >= in.keypoint_start[row + 1] - in.keypoint_start[row]) {
        lost[static_cast<std::size_t>(t)] = k;
        return;
      }
      const double* xy = in.xy + 2 * (in.keypoint_start[row] + number);
      out.image[k] = row;
      out.point[k] = static_cast<std::int32_t>(point);
      std::copy(xy, xy + 2, out.pixel + 2 * k);
      ++own[static_cast<std::size_t>(row)];
    }
    seen[static_cast<std::size_t>(t)] = std::move(own);
  });
  for (const std::int64_t k : lost)
    if (k >= 0) return k;
  std::fill(counts, counts + in.images, 0);
  for (const std::vector<std::int64_t>& own : seen)
    for (std::int64_t row = 0; row < in.images; ++row) counts[row] += own[static_cast<std::size_t>(row)];
  return -1;
}

template <class Index>
std::int64_t count_behind(const ObservationRows<Index>& rows, const double* planes, const double* points,
                          double least) {
  std::atomic<std::int64_t> behind{0};
  std::atomic<bool> fits{true};
  for_each_share(rows.size, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = rows.image[i], point = rows.point[i];
      if (image < 0 || image >= rows.images || point < 0 || point >= rows.points) {
        fits = false;
        return;
      }
      const double* const n = planes + 4 * image;
      const double* const x = points + 3 * point;
      const bool is_ahead = n[0] * x[0] + n[1] * x[1] + n[2] * x[2] + n[3] > least;
      own += static_cast<std::int64_t>(!is_ahead);
    }
    behind += own;
  });
  return fits ? behind.load() : -1;
}

template std::int64_t count_behind(const ObservationRows<std::int32_t>&, const double*, const double*,
                                   double);
template std::int64_t count_behind(const ObservationRows<std::int64_t>&, const double*, const double*,
                                   double);

}  // namespace graphopt::edges
