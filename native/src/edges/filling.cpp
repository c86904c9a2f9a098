#include "edges/filling.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "edges/shares.h"

namespace graphopt::edges {
namespace {

constexpr std::int64_t kNone = -1;

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
    if (id != kNone) visit(k, id, keypoint);
  }
}

// Images that hold about equal numbers of keypoints: task(begin, end).
template <class Task>
void for_each_part(const KeypointLists& lists, const Task& task) {
  std::vector<std::int64_t> before(static_cast<std::size_t>(lists.images) + 1, 0);
  for (std::int64_t i = 0; i < lists.images; ++i)
    before[static_cast<std::size_t>(i) + 1] = before[static_cast<std::size_t>(i)] + lists.counts[i];
  const auto image_of = [&](std::int64_t keypoint) {
    return std::lower_bound(before.begin(), before.end(), keypoint) - before.begin();
  };
  const std::int64_t total = before.back();
  for_each_share(total, [&](std::int64_t begin, std::int64_t end) {
    task(begin == 0 ? 0 : image_of(begin), end == total ? lists.images : image_of(end));
  });
}

}  // namespace

bool fill_edges(const std::vector<SlotIds>& slots, std::int64_t size, std::int64_t* vertices,
                double* information, std::int64_t dim, double* width) {
  constexpr std::int64_t kAtOnce = 512;  // rows of which all columns are written while they are in the cache
  const auto arity = static_cast<std::int64_t>(slots.size()), square = dim * dim;
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
      if (information != nullptr) {
        std::fill(information + i * square, information + end * square, 0.0);
        for (std::int64_t k = i; k < end; ++k)
          for (std::int64_t d = 0; d < dim; ++d) information[k * square + d * (dim + 1)] = 1.0;
      }
      if (width != nullptr) std::fill(width + i, width + end, 1.0);
    }
    if (!own) fits = false;
  });
  return fits;
}

std::vector<std::int64_t> count_observations(const KeypointLists& lists) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(lists.images) + 1, 0);
  for_each_part(lists, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t seen = 0;
      visit_keypoints(lists, i, [&](std::int64_t, std::int64_t, const char*) { ++seen; });
      starts[static_cast<std::size_t>(i) + 1] = seen;
    }
  });
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  return starts;
}

std::int64_t read_observations(const KeypointLists& lists, const std::vector<std::int64_t>& starts,
                               const std::int64_t* table, std::int64_t table_size, const Observations& out) {
  std::atomic<std::int64_t> lost{kNone};
  for_each_part(lists, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t at = starts[static_cast<std::size_t>(i)];
      visit_keypoints(lists, i, [&](std::int64_t number, std::int64_t id, const char* keypoint) {
        std::int64_t point = id;
        if (table != nullptr) {
          point = id >= 0 && id < table_size ? table[id] : kNone;
          if (point == kNone) lost = id;
        }
        out.image[at] = i;
        out.point[at] = point;
        out.number[at] = number;
        std::memcpy(out.pixel + 2 * at, keypoint, 2 * sizeof(double));
        ++at;
      });
    }
  });
  return lost;
}

}  // namespace graphopt::edges
