// When conjugate gradients stop, for all that run on the host, and their scalars where one reduction per
// iteration has both scalar products (Chronopoulos and Gear 1989):
//
//   s = M^-1 r;  w = A s;  gamma = r's;  delta = s'w
//   beta = gamma / gamma_before;  alpha = gamma / (delta - beta gamma / alpha_before)
//   d = s + beta d;  q = w + beta q;  x += alpha d;  r -= alpha q
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace graphopt {

// Stop where r' M^-1 r <= tolerance * (its start), or after `most` iterations; or, after `patience` of them,
// where as many again, at the gain of the last one, would not add share times the gain so far, or worth.
struct ConjugateRule {
  double tolerance = 0.0, share = 0.0, worth = 0.0;
  std::int64_t most = 0, patience = 30;

  bool is_enough(std::int64_t iterations, double gain, double total_gain) const {
    return iterations >= patience &&
           static_cast<double>(iterations) * gain < std::max(share * total_gain, worth);
  }

  // Soft modes come late, as late as in the solve before, which took so many iterations; < 0: it is the
  // first.
  static std::int64_t patience_after(std::int64_t before) {
    constexpr std::int64_t least = 10, most = 30, part = 4;
    return before < 0 ? most : std::clamp(before / part, least, most);
  }
};

class ConjugateSteps {
 public:
  explicit ConjugateSteps(const ConjugateRule& rule) : rule_(rule) {}

  // Take gamma and delta of an iteration; false: it is the last one. is_indefinite: somebody has found A so.
  bool take(double gamma, double delta, bool is_indefinite) {
    is_definite = !is_indefinite && std::isfinite(gamma);
    if (!is_definite) return false;
    if (iterations_ < 0) threshold_ = rule_.tolerance * gamma;
    const bool is_first = ++iterations_ == 0;
    if (!(gamma > threshold_) || iterations_ >= rule_.most) return false;
    if (rule_.is_enough(iterations_, gain_, total_gain_)) return false;
    beta = is_first ? 0.0 : gamma / gamma_;
    const double curvature = is_first ? delta : delta - beta * gamma / alpha;
    if (!(curvature > 0.0)) {  // not definite, or not finite
      is_definite = !is_first;
      return false;
    }
    gamma_ = gamma;
    alpha = gamma / curvature;
    gain_ = alpha * gamma;
    total_gain_ += gain_;
    return true;
  }
  std::int64_t iterations() const { return std::max<std::int64_t>(iterations_, 0); }

  double alpha = 0.0, beta = 0.0;
  bool is_definite = true;

 private:
  ConjugateRule rule_;
  std::int64_t iterations_ = -1;
  double gamma_ = 0.0, gain_ = 0.0, total_gain_ = 0.0, threshold_ = 0.0;
};

}  // namespace graphopt
