// The loop of conjugate gradients, for all that iterate on the host. What an operator and a preconditioner do
// with the vectors of an iteration is the caller's:
//
//   start        x = 0;  r = b;  s = M^-1 r                         -> r's
//   curvature    d = s + beta d;  q = A d                           -> d'q
//   step         x += alpha d;  r -= alpha q;  s = M^-1 r           -> r's
//
// Where one reduction per iteration has both scalar products (Chronopoulos and Gear 1989), start and step
// also give w = A s and s'w; then q = w + beta q, and the curvature is `merged_curvature`.
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

struct ConjugateOutcome {
  std::int64_t iterations = 0;
  double residual = 0.0;      // r' M^-1 r at the end
  bool is_converged = false;  // to the tolerance, or as far as share and worth ask for
  bool has_curvature = true;  // false: d' A d was not positive and finite; x is that of the step before
};

// Members of a team may run it together: it decides by what `vectors` returns, the same on all of them.
template <class Vectors>
ConjugateOutcome conjugate_gradients(Vectors& vectors, const ConjugateRule& rule) {
  ConjugateOutcome outcome;
  double residual = vectors.start(), beta = 0.0, model = 0.0;
  const double bound = rule.tolerance * residual;
  for (bool is_enough = false;;) {
    outcome.residual = residual;
    outcome.is_converged = is_enough || residual <= bound;
    if (outcome.is_converged || outcome.iterations >= rule.most || !std::isfinite(residual)) return outcome;
    const double curvature = vectors.curvature(beta);
    outcome.has_curvature = curvature > 0.0 && std::isfinite(curvature);
    if (!outcome.has_curvature) return outcome;
    const double alpha = residual / curvature, gain = alpha * residual, next = vectors.step(alpha);
    model += gain;
    is_enough = rule.is_enough(++outcome.iterations, gain, model);
    beta = next / residual;
    residual = next;
  }
}

// d' A d from s'A s and r's; alpha: of the step before, beta: 0 before the first one.
inline double merged_curvature(double products, double residual, double alpha, double beta) {
  return beta == 0.0 ? products : products - beta * residual / alpha;
}

}  // namespace graphopt
