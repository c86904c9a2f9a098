#include "vm/planes.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace graphopt::vm {
namespace {

constexpr float kBlank = 0.0F;
Plane planes[kMaxPlanes] = {{&kBlank, 1, 1}};
std::mutex mutex;

// Never destroyed: its entries may outlive the Python interpreter.
std::unordered_map<std::int64_t, std::shared_ptr<void>>& owners() {
  static auto* const map = new std::unordered_map<std::int64_t, std::shared_ptr<void>>;
  return *map;
}

void check(std::int64_t number) {
  if (number < 1 || number >= kMaxPlanes)
    throw std::invalid_argument("plane " + std::to_string(number) + " is outside 1 .. " +
                                std::to_string(kMaxPlanes - 1));
}

// Null where the number, whatever it is, names no plane.
const Plane* find(double number) {
  if (!(number >= 0.0 && number < kMaxPlanes)) return nullptr;
  const auto k = static_cast<std::int32_t>(number);
  return k == number && planes[k].pixels != nullptr ? &planes[k] : nullptr;
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

void set_plane(std::int64_t number, Plane plane, std::shared_ptr<void> owner) {
  check(number);
  const std::lock_guard<std::mutex> lock(mutex);
  planes[number] = plane;
  owners()[number] = std::move(owner);
}

void drop_plane(std::int64_t number) {
  check(number);
  std::shared_ptr<void> owner;  // released after the lock
  const std::lock_guard<std::mutex> lock(mutex);
  planes[number] = Plane{};
  owner = std::move(owners()[number]);
  owners().erase(number);
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
