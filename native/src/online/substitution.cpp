// Right-hand sides and steps.
#include <algorithm>

#include "online/tree.h"

namespace graphopt::online {

// The cliques and all above them, children first.
std::vector<std::int32_t> Tree::path_to_root(const std::vector<std::int32_t>& cliques) {
  std::vector<std::int32_t> path;
  for (const std::int32_t first : cliques)
    for (std::int32_t c = first; c != -1 && !mark_[static_cast<std::size_t>(c)]; c = parent_[c]) {
      mark_[static_cast<std::size_t>(c)] = 1;
      path.push_back(c);
    }
  for (const std::int32_t c : path) mark_[static_cast<std::size_t>(c)] = 0;
  std::sort(path.begin(), path.end(), [&](std::int32_t a, std::int32_t b) {
    return position_of_[cliques_[a].shape->frontals[0]] < position_of_[cliques_[b].shape->frontals[0]];
  });
  return path;
}

// A few numbers; where there are 3 or 6 without a call.
static inline double* copy_few(const double* from, int count, double* to) {
  if (count == 3) {
    for (int i = 0; i < 3; ++i) to[i] = from[i];
  } else if (count == 6) {
    for (int i = 0; i < 6; ++i) to[i] = from[i];
  } else {
    std::copy_n(from, count, to);
  }
  return to + count;
}

void Tree::gather(const std::vector<std::int32_t>& vertices, const double* scalars, double* out) const {
  for (const std::int32_t v : vertices) out = copy_few(scalars + problem_.offset[v], problem_.dim(v), out);
}

// y <- inverse of L times y, along the path.
void Tree::forward_path(const std::vector<std::int32_t>& path, std::vector<double>& y) {
  for (const std::int32_t c : path) {
    const Shape& shape = *cliques_[c].shape;
    buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
    padded_.resize(std::max(padded_.size(), static_cast<std::size_t>(num_strips(shape.num_below) * kStrip)));
    gather(shape.frontals, y.data(), buffer_.data());
    if (std::all_of(buffer_.begin(), buffer_.begin() + shape.num_pivots, [](double x) { return x == 0.0; }))
      continue;
    forward_front(front_of(c), buffer_.data(), padded_.data());
    const double* from = buffer_.data();
    for (const std::int32_t v : shape.frontals) {
      copy_few(from, problem_.dim(v), y.data() + problem_.offset[v]);
      from += problem_.dim(v);
    }
    from = padded_.data();
    for (const std::int32_t v : shape.separator) {
      double* const to = y.data() + problem_.offset[v];
      for (int i = 0; i < problem_.dim(v); ++i) to[i] -= *from++;
    }
  }
}

// ---------------------------------------------------------------------- the gradient that is left

void Tree::set_energy(std::int32_t c, double energy) {
  if (energy == energy_[c]) return;
  total_energy_.set(0, total_energy_[0] + (energy - energy_[c]));
  energy_.set(c, energy);
}

void Tree::add_right_hand_side(const std::vector<std::int32_t>& vertices, const double* values) {
  for (const std::int32_t v : vertices) {
    const int dim = problem_.dim(v);
    double* const to = rhs_.data() + problem_.offset[v];
    for (int i = 0; i < dim && problem_.is_free(v); ++i) to[i] += values[i];
    values += dim;
  }
}

// rhs_ <- L y of these cliques, which then have none.
void Tree::take_right_hand_side(const std::vector<std::int32_t>& cliques) {
  for (const std::int32_t c : cliques) {
    const Shape& shape = *cliques_[c].shape;
    for (const std::int32_t v : shape.frontals)
      if (problem_.is_free(v)) rhs_vertices_.push_back(v);
    if (!(energy_[c] > 0.0)) continue;
    buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
    padded_.resize(std::max(padded_.size(), static_cast<std::size_t>(num_strips(shape.num_below) * kStrip)));
    gather(shape.frontals, y_.data(), buffer_.data());
    multiply_front(front_of(c), buffer_.data(), padded_.data());
    add_right_hand_side(shape.frontals, buffer_.data());
    add_right_hand_side(shape.separator, padded_.data());
    for (const std::int32_t v : shape.frontals)
      for (int i = 0; i < problem_.dim(v); ++i) y_.set(problem_.offset[v] + i, 0.0);
    set_energy(c, 0.0);
  }
}

void Tree::clear_right_hand_side() {
  for (const std::int32_t v : rhs_vertices_)
    std::fill_n(rhs_.begin() + problem_.offset[v], problem_.dim(v), 0.0);
  rhs_vertices_.clear();
}

void Tree::forget_gradient() {
  for (std::int64_t c = 0; c < cliques_.size(); ++c) {
    if (!(energy_[c] > 0.0)) continue;
    for (const std::int32_t v : cliques_[c].shape->frontals)
      for (int i = 0; i < problem_.dim(v); ++i) y_.set(problem_.offset[v] + i, 0.0);
    energy_.set(c, 0.0);
  }
  total_energy_.set(0, 0.0);
}

void Tree::forward(const std::vector<std::int32_t>& vertices) {
  require_scalars();
  for (const std::int32_t v : vertices)
    for (int i = 0; i < problem_.dim(v); ++i) {
      const std::int64_t at = problem_.offset[v] + i;
      if (problem_.pending[at] == 0.0) continue;
      rhs_[static_cast<std::size_t>(at)] += problem_.pending[at];
      problem_.pending.set(at, 0.0);
    }
  std::vector<std::int32_t> cliques;
  rhs_vertices_.insert(rhs_vertices_.end(), vertices.begin(), vertices.end());
  for (const std::int32_t v : rhs_vertices_) cliques.push_back(clique_of_[v]);
  const std::vector<std::int32_t> path = path_to_root(cliques);
  forward_path(path, rhs_);
  for (const std::int32_t c : path) {
    const std::vector<double>& share = cliques_[c].numbers->share;
    double energy = 0.0;
    bool has_changed = false;
    std::size_t pivot = 0;
    for (const std::int32_t v : cliques_[c].shape->frontals)
      for (int i = 0; i < problem_.dim(v); ++i, ++pivot) {
        const std::int64_t at = problem_.offset[v] + i;
        double& change = rhs_[static_cast<std::size_t>(at)];
        const double y = y_[at] + change;
        if (change != 0.0) y_.set(at, y), has_changed = true;
        change = 0.0;
        energy += share.empty() ? y * y : share[pivot] * (2.0 - share[pivot]) * y * y;
      }
    if (has_changed) set_energy(c, energy);
  }
  rhs_vertices_.clear();
}

// ---------------------------------------------------------------------- steps

static void shorten(const std::vector<double>& share, double* step) {
  for (const double of_pivot : share) *step++ *= of_pivot;
}

// Whether the clique moves, or what is below it may.
bool Tree::visit(std::int32_t c, double threshold, Step& step) {
  const Shape& shape = *cliques_[c].shape;
  const Front front = front_of(c);
  const auto n = static_cast<std::size_t>(shape.num_pivots), m = static_cast<std::size_t>(shape.num_below);
  const auto room = static_cast<std::size_t>(num_strips(shape.num_below) * kStrip);
  buffer_.resize(std::max(buffer_.size(), n));
  padded_.resize(std::max(padded_.size(), room));
  gather(shape.separator, dx_.data(), padded_.data());
  const bool is_pulled = std::any_of(padded_.begin(), padded_.begin() + static_cast<std::ptrdiff_t>(m),
                                     [](double x) { return x != 0.0; });
  if (!is_pulled && !(energy_[c] > threshold)) return false;
  std::fill(padded_.begin() + static_cast<std::ptrdiff_t>(m),
            padded_.begin() + static_cast<std::ptrdiff_t>(room), 0.0);
  gather(shape.frontals, y_.data(), buffer_.data());
  ++step.cliques;
  if (is_pulled) subtract_below(front, buffer_.data(), padded_.data());
  shorten(cliques_[c].numbers->share, buffer_.data());
  double energy = 0.0;
  for (std::size_t i = 0; i < n; ++i) energy += buffer_[i] * buffer_[i];
  const bool moves = energy > threshold;
  step.gain += energy_[c] - (moves ? 0.0 : energy);
  if (!moves) return is_pulled;
  backward_front(Front{front.num_pivots, 0, front.diagonal, nullptr, nullptr, nullptr}, buffer_.data(),
                 nullptr);
  const double* values = buffer_.data();
  for (const std::int32_t v : shape.frontals) {
    stepped_.emplace_back(problem_.offset[v], problem_.dim(v));
    copy_few(values, problem_.dim(v), dx_.data() + problem_.offset[v]);
    values += problem_.dim(v);
    step.vertices.push_back(v);
  }
  return true;
}

// Cliques with more energy than the threshold, parents first.
std::vector<std::int32_t> Tree::starts(double threshold) const {
  std::vector<std::int32_t> found;
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(energy_.size()); ++c)
    if (energy_[c] > threshold) found.push_back(c);
  std::sort(found.begin(), found.end(), [&](std::int32_t a, std::int32_t b) {
    return position_of_[cliques_[a].shape->frontals[0]] > position_of_[cliques_[b].shape->frontals[0]];
  });
  return found;
}

Tree::Step Tree::backward(double threshold) {
  require_scalars();
  for (const auto& [first, size] : stepped_) std::fill_n(dx_.begin() + first, size, 0.0);
  stepped_.clear();
  Step step;
  std::vector<std::int32_t> stack, seen;
  for (const std::int32_t start : starts(threshold)) {
    if (mark_[static_cast<std::size_t>(start)]) continue;
    stack.push_back(start);
    while (!stack.empty()) {
      const std::int32_t c = stack.back();
      stack.pop_back();
      if (mark_[static_cast<std::size_t>(c)]) continue;
      if (!visit(c, threshold, step)) continue;
      mark_[static_cast<std::size_t>(c)] = 1;
      seen.push_back(c);
      for (const std::int32_t child : children_[c]) stack.push_back(child);
    }
  }
  for (const std::int32_t c : seen) mark_[static_cast<std::size_t>(c)] = 0;
  return step;
}

const double* Tree::steps_of(const std::vector<std::int32_t>& vertices) {
  require_scalars();
  std::vector<std::int32_t> cliques;
  for (const std::int32_t v : vertices) {
    if (clique_of_[v] >= 0) {
      cliques.push_back(clique_of_[v]);
    } else {
      std::fill_n(x_.begin() + problem_.offset[v], problem_.dim(v), 0.0);
    }
  }
  const std::vector<std::int32_t> path = path_to_root(cliques);
  for (auto c = path.rbegin(); c != path.rend(); ++c) backward_clique(*c);
  return x_.data();
}

// The step of the clique's frontals from that of its separator, both in x_; of it as much as points take.
void Tree::backward_clique(std::int32_t c) {
  const Shape& shape = *cliques_[c].shape;
  const Front front = front_of(c);
  const auto room = static_cast<std::size_t>(num_strips(shape.num_below) * kStrip);
  buffer_.resize(std::max(buffer_.size(), static_cast<std::size_t>(shape.num_pivots)));
  padded_.resize(std::max(padded_.size(), room));
  gather(shape.separator, x_.data(), padded_.data());
  std::fill(padded_.begin() + shape.num_below, padded_.begin() + static_cast<std::ptrdiff_t>(room), 0.0);
  gather(shape.frontals, y_.data(), buffer_.data());
  subtract_below(front, buffer_.data(), padded_.data());
  shorten(cliques_[c].numbers->share, buffer_.data());
  backward_front(Front{front.num_pivots, 0, front.diagonal, nullptr, nullptr, nullptr}, buffer_.data(),
                 nullptr);
  const double* values = buffer_.data();
  for (const std::int32_t v : shape.frontals) {
    copy_few(values, problem_.dim(v), x_.data() + problem_.offset[v]);
    values += problem_.dim(v);
  }
}

std::int64_t Tree::bytes() const {
  std::int64_t total = 0;
  for (std::int64_t c = 0; c < cliques_.size(); ++c)
    if (cliques_[c].numbers) total += cliques_[c].numbers->bytes();
  return total;
}

}  // namespace graphopt::online
