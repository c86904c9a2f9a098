// Sums whose rounding error does not grow with the number of terms.
#pragma once

#include <cmath>

namespace graphopt::vm {

// Neumaier's compensated sum.
class CompensatedSum {
 public:
  void add(double x) {
    const double total = sum_ + x;
    if (std::isfinite(total))
      correction_ += std::fabs(sum_) >= std::fabs(x) ? (sum_ - total) + x : (x - total) + sum_;
    sum_ = total;
  }
  double value() const { return sum_ + correction_; }

 private:
  double sum_ = 0.0, correction_ = 0.0;
};

}  // namespace graphopt::vm
