#include "vm/planes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace graphopt::vm {
namespace {

// A plane and what keeps its pixels alive; never changes.
struct Entry {
  Plane plane;
  std::shared_ptr<void> owner;
};

constexpr float kBlank = 0.0F;
const Entry blank{{&kBlank, 1, 1}, nullptr};
std::atomic<const Entry*> entries[kMaxPlanes] = {{&blank}};

// Threads that read entries, counted in stripes so that they do not share a cache line.
constexpr int kStripes = 64;
struct alignas(64) Stripe {
  std::atomic<int> readers{0};
};
Stripe stripes[kStripes];

std::atomic<int>& own_readers() {
  static std::atomic<unsigned> next{0};
  thread_local const unsigned stripe = next++ % kStripes;
  return stripes[stripe].readers;
}

// Entries that are out of the table, but that somebody may still read. Never destroyed: they may outlive the
// Python interpreter.
std::mutex mutex;
std::vector<std::unique_ptr<const Entry>>& retired() {
  static auto* const list = new std::vector<std::unique_ptr<const Entry>>;
  return *list;
}

// Who reads now has been counted before it looked into the table, and found what is there now or was noted:
// so once a stripe is seen without readers, none of them knows an entry that was taken out before.
void replace(std::int64_t number, const Entry* entry) {
  std::vector<std::unique_ptr<const Entry>> unused;  // destroyed after the lock: pixels belong to Python
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const Entry> fresh(entry);
  retired().reserve(retired().size() + 1);
  if (const Entry* old = entries[number].exchange(fresh.release())) retired().emplace_back(old);
  for (const Stripe& stripe : stripes) {
    if (stripe.readers.load() != 0) return;  // a later call releases it
  }
  unused.swap(retired());
}

void check(std::int64_t number) {
  if (number < 1 || number >= kMaxPlanes)
    throw std::invalid_argument("plane " + std::to_string(number) + " is outside 1 .. " +
                                std::to_string(kMaxPlanes - 1));
}

// Null where the number, whatever it is, names no plane. Valid while the caller is a `PlaneReader`.
const Plane* find(double number) {
  if (!(number >= 0.0 && number < kMaxPlanes)) return nullptr;
  const auto k = static_cast<std::int32_t>(number);
  if (k != number) return nullptr;
  const Entry* const entry = entries[k].load();
  return entry == nullptr ? nullptr : &entry->plane;
}

struct Cell {
  std::int32_t index;
  double place;   // 0 to 1, NaN where x is
  double inside;  // 1, or 0 where x was clamped
};

Cell cell(double x, std::int32_t length) {
  const double last = length - 1.0;
  const double clamped = x < 0.0 ? 0.0 : x > last ? last : x;
  std::int32_t index = 0;
  if (clamped >= 1.0) index = std::min(static_cast<std::int32_t>(clamped), std::max(length - 2, 0));
  return {index, clamped - index, x >= 0.0 && x <= last ? 1.0 : 0.0};
}

struct Weights {
  double value[4], rate[4];
};

Weights weights(double t) {
  return {
      {t * (-0.5 + t * (1.0 - 0.5 * t)), 1.0 + t * t * (-2.5 + 1.5 * t), t * (0.5 + t * (2.0 - 1.5 * t)),
       t * t * (-0.5 + 0.5 * t)},
      {-0.5 + t * (2.0 - 1.5 * t), t * (-5.0 + 4.5 * t), 0.5 + t * (4.0 - 4.5 * t), t * (-1.0 + 1.5 * t)}};
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

PlaneReader::PlaneReader() : readers_(own_readers()) { readers_.fetch_add(1); }

PlaneReader::~PlaneReader() { readers_.fetch_sub(1); }

void set_plane(std::int64_t number, Plane plane, std::shared_ptr<void> owner) {
  check(number);
  replace(number, plane.pixels == nullptr ? nullptr : new Entry{plane, std::move(owner)});
}

void drop_plane(std::int64_t number) {
  check(number);
  replace(number, nullptr);
}

Sample sample_bilinear(double number, double u, double v) {
  const Plane* plane = find(number);
  if (plane == nullptr) return {kNan, kNan, kNan};
  const Cell across = cell(u, plane->width), down = cell(v, plane->height);
  const std::int32_t step = across.index + 1 < plane->width ? 1 : 0;
  const float* row = plane->pixels + static_cast<std::int64_t>(down.index) * plane->width + across.index;
  const float* next = down.index + 1 < plane->height ? row + plane->width : row;
  const double a = row[0], b = row[step], c = next[0], d = next[step];
  const double f = across.place, g = down.place;
  const double top = a + f * (b - a), bottom = c + f * (d - c);
  return {top + g * (bottom - top), across.inside * ((b - a) + g * ((d - c) - (b - a))),
          down.inside * (bottom - top)};
}

Sample sample_bicubic(double number, double u, double v) {
  const Plane* plane = find(number);
  if (plane == nullptr) return {kNan, kNan, kNan};
  const Cell across = cell(u, plane->width), down = cell(v, plane->height);
  const Weights wu = weights(across.place), wv = weights(down.place);
  Sample sum{0.0, 0.0, 0.0};
  for (int k = 0; k < 4; ++k) {
    const std::int32_t i = std::clamp(down.index + k - 1, 0, plane->height - 1);
    const float* row = plane->pixels + static_cast<std::int64_t>(i) * plane->width;
    double line = 0.0, line_rate = 0.0;
    for (int l = 0; l < 4; ++l) {
      const double p = row[std::clamp(across.index + l - 1, 0, plane->width - 1)];
      line += wu.value[l] * p;
      line_rate += wu.rate[l] * p;
    }
    sum.value += wv.value[k] * line;
    sum.by_u += wv.value[k] * line_rate;
    sum.by_v += wv.rate[k] * line;
  }
  return {sum.value, across.inside * sum.by_u, down.inside * sum.by_v};
}

}  // namespace graphopt::vm
