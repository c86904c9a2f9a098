// Planes of pixels by number, and sampling them. graphopt/symbolic/sampling.py is the definition.
//
// The table belongs to the process: programs name planes by numbers that they find in their registers. The
// pixels of a plane should not change while a program that samples it runs. Planes may be set and dropped by
// any thread at any time: a program that runs sees the old one, the new one or none, and old pixels stay
// alive while somebody reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace graphopt::vm {

inline constexpr int kMaxPlanes = 65536;

struct Plane {
  const float* pixels = nullptr;  // [height][width]; null: no such plane
  std::int32_t width = 0, height = 0;
};

struct Sample {
  double value, by_u, by_v;
};

// Throws std::invalid_argument for a number outside 1 .. kMaxPlanes - 1. `owner` keeps the pixels alive.
// Plane 0 is always there: one pixel of value 0.
void set_plane(std::int64_t number, Plane plane, std::shared_ptr<void> owner);
void drop_plane(std::int64_t number);

// Whoever samples has one of these meanwhile.
class PlaneReader {
 public:
  PlaneReader();
  ~PlaneReader();
  PlaneReader(const PlaneReader&) = delete;
  PlaneReader& operator=(const PlaneReader&) = delete;

 private:
  std::atomic<int>& readers_;
};

// At column u and row v; NaN where `number` names no plane.
Sample sample_bilinear(double number, double u, double v);
Sample sample_bicubic(double number, double u, double v);

}  // namespace graphopt::vm
