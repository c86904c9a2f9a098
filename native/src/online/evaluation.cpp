// Evaluating edges, and what their models become.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "online/problem.h"
#include "online/program_frames.h"
#include "parallel/thread_pool.h"
#include "vm/transpose.h"

namespace graphopt::online {

using vm::kLanes;
using vm::kVectorLanes;

int Problem::stride(int k) const {
  const int n = edge_kinds[static_cast<std::size_t>(k)]->num_outputs;
  return (n + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
}

void Problem::linearize(int k, const std::int32_t* edges, std::int64_t count, double* out,
                        const std::vector<std::vector<double>>* moved) const {
  const EdgeKind& g = *edge_kinds[static_cast<std::size_t>(k)];
  const vm::Program& program = *g.linearize;
  const bool is_narrow = program.narrow_code != nullptr;
  const int width = is_narrow ? kVectorLanes : kLanes;
  Frames& own = program_frames();
  double* const frame =
      Frames::of(is_narrow ? own.narrow : own.wide, g.linearize).prepare(g.linearize, width);
  vm::RobustContext robust;
  alignas(64) double widths[kLanes];
  if (g.kernel) robust = {g.kernel.get(), own.kernel.prepare(g.kernel, kLanes), widths};
  const int row_stride = stride(k), arity = g.arity();
  for (std::int64_t begin = 0; begin < count; begin += width) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(width, count - begin));
    const int filled =
        is_narrow ? kVectorLanes : std::min(kLanes, (lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes);
    std::int32_t edge[kLanes], rows[kLanes];
    for (int l = 0; l < filled; ++l) edge[l] = edges[begin + std::min(l, lanes - 1)];
    const std::int32_t* input = program.input_registers.data();
    const auto load = [&](const double* base, int columns) {
      if (is_narrow) {
        vm::rows_to_lanes<kVectorLanes>(base, columns, rows, input, frame, filled);
      } else {
        vm::rows_to_lanes<kLanes>(base, columns, rows, input, frame, filled);
      }
      input += columns;
    };
    for (int s = 0; s < arity; ++s) {
      for (int l = 0; l < filled; ++l) rows[l] = row[entry_vertex[first_entry[edge[l]] + s]];
      const auto number = static_cast<std::size_t>(g.vertex_kinds[static_cast<std::size_t>(s)]);
      load(moved == nullptr ? kinds[number]->estimate.data() : (*moved)[number].data(),
           kinds[number]->storage_dim);
    }
    for (std::size_t p = 0; p < g.parameter_sets.size(); ++p) {
      for (int l = 0; l < filled; ++l)
        rows[l] = g.parameter_rows[static_cast<std::int64_t>(edge_row[edge[l]]) *
                                       static_cast<std::int64_t>(g.parameter_sets.size()) +
                                   static_cast<std::int64_t>(p)];
      const Parameters& set = parameters[static_cast<std::size_t>(g.parameter_sets[p])];
      load(set.values.data(), set.columns);
    }
    for (int l = 0; l < filled; ++l) rows[l] = edge_row[edge[l]];
    const int columns = static_cast<int>(g.data_registers.size());
    // the rows of `data` may end with the width of a kernel
    for (int c = 0; c < columns; ++c, ++input) {
      if (*input < 0) continue;
      double* const target = frame + static_cast<std::size_t>(*input) * static_cast<std::size_t>(width);
      for (int l = 0; l < filled; ++l)
        target[l] = g.data[static_cast<std::int64_t>(rows[l]) * g.data_dim + c];
    }
    if (g.kernel)
      for (int l = 0; l < filled; ++l)
        widths[l] = g.data[static_cast<std::int64_t>(rows[l]) * g.data_dim + columns];
    if (is_narrow) {
      program.narrow_code(frame, robust, kVectorLanes);
    } else {
      vm::execute(program, frame, robust, lanes);
    }
    double* target = out + begin * row_stride;
    if (lanes == filled) {
      if (is_narrow) {
        vm::lanes_to_rows<kVectorLanes>(frame, g.output_registers.data(), g.num_outputs, target, row_stride,
                                        filled);
      } else {
        vm::lanes_to_rows<kLanes>(frame, g.output_registers.data(), g.num_outputs, target, row_stride,
                                  filled);
      }
    } else {
      for (int l = 0; l < lanes; ++l)
        for (int o = 0; o < g.num_outputs; ++o)
          target[l * row_stride + o] =
              frame[static_cast<std::size_t>(g.output_registers[static_cast<std::size_t>(o)]) *
                        static_cast<std::size_t>(width) +
                    static_cast<std::size_t>(l)];
    }
  }
}

// ---------------------------------------------------------------------- taking outputs

void Problem::note(std::int32_t v) {
  if (static_cast<std::size_t>(v) >= is_noted_.size())
    is_noted_.resize(static_cast<std::size_t>(num_places()), 0);
  if (is_noted_[static_cast<std::size_t>(v)]) return;
  changed.push_back(v);
  is_noted_[static_cast<std::size_t>(v)] = 1;
}

void Problem::add_pending(std::int32_t v, const double* values, const double* less) {
  const int size = dim(v);
  if (std::equal(values, values + size, less)) return;
  double* const own = pending.edit(offset[v], size);
  for (int i = 0; i < size; ++i) own[i] += values[i] - less[i];
  note(v);
}

void Problem::forget_changed() {
  for (const std::int32_t v : changed) is_noted_[static_cast<std::size_t>(v)] = 0;
  changed.clear();
}

void Problem::add_chi2(double change) {
  // two numbers hold the sum, so that many updates do not wear it off
  const double high = total_[0], sum = high + change, part = sum - high;
  total_.set(1, total_[1] + ((high - (sum - part)) + (change - part)));
  total_.set(0, sum);
}

namespace {

constexpr int kMostScalars = 64;  // of an edge whose H may be kept

// Whether an entry has changed by more than `tolerance` of its rows' diagonal.
bool differs(const EdgeKind& own, const double* H, const double* other, double tolerance) {
  const auto count = static_cast<int>(own.entry_row.size());
  double scale[kMostScalars];  // squared, with the tolerance
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < own.state_dim; ++i) {
    scale[i] = tolerance * std::abs(H[own.diagonal[static_cast<std::size_t>(i)]]);
    least = std::min(least, scale[i]);
  }
  constexpr int kSums = 8, kAtOnce = 16;
  double sums[kSums] = {};
  int whole = 0;
  for (; whole + kSums <= count; whole += kSums)
    for (int i = 0; i < kSums; ++i)
      sums[i] += (H[whole + i] - other[whole + i]) * (H[whole + i] - other[whole + i]);
  for (; whole < count; ++whole) sums[0] += (H[whole] - other[whole]) * (H[whole] - other[whole]);
  if (std::accumulate(sums, sums + kSums, 0.0) <= least * least) return false;  // of most: hardly any
  const std::int32_t *const rows = own.entry_row.data(), *const columns = own.entry_column.data();
  for (int first = 0; first < count; first += kAtOnce) {
    const int end = std::min(count, first + kAtOnce);
    bool differs = false;
    for (int k = first; k < end; ++k)
      differs |= (H[k] - other[k]) * (H[k] - other[k]) > scale[rows[k]] * scale[columns[k]];
    if (differs) return true;
  }
  return false;
}

}  // namespace

bool Problem::is_stale(std::int32_t e, const double* H, const double* other, const Evaluation& how) const {
  const EdgeKind& own = kind_of(e);
  if (own.state_dim > kMostScalars) return true;
  if (!differs(own, H, other, how.tolerance)) return false;
  if (how.step == nullptr || differs(own, H, other, how.most)) return true;
  double d[kMostScalars], *to = d;
  for (int s = 0; s < own.arity(); ++s) {
    const std::int32_t v = entry_vertex[first_entry[e] + s];
    const int size = own.dims[static_cast<std::size_t>(s)];
    to = is_free(v) ? std::copy_n(how.step + offset[v], size, to) : std::fill_n(to, size, 0.0);
  }
  double change = 0.0;
  for (std::size_t k = 0; k < own.entry_row.size(); ++k) {
    const std::int32_t i = own.entry_row[k], j = own.entry_column[k];
    change += (i == j ? 1.0 : 2.0) * (other[k] - H[k]) * d[i] * d[j];
  }
  return std::abs(change) > how.energy;
}

void Problem::refuse_as_not_finite(std::int32_t e) const {
  throw Refused("The error or the Jacobian of " + name(e) +
                " is not finite: check its measurement and the estimates of its vertices.");
}

// Without a chain of sums that each wait for the one before.
static bool are_finite(const double* values, int count) {
  constexpr int kSums = 8;
  double check[kSums] = {};
  int k = 0;
  for (; k + kSums <= count; k += kSums)
    for (int i = 0; i < kSums; ++i) check[i] += values[k + i] * 0.0;
  for (; k < count; ++k) check[0] += values[k] * 0.0;
  return std::all_of(check, check + kSums, [](double sum) { return sum == 0.0; });
}

double Problem::take_model(std::int32_t e, const double* outputs, const Evaluation& how) {
  EdgeKind& g = *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  if (!are_finite(outputs, g.num_outputs)) {
    if (!how.must_be_finite) return std::numeric_limits<double>::infinity();
    refuse_as_not_finite(e);
  }
  const std::int64_t first = static_cast<std::int64_t>(edge_row[e]) * g.num_outputs;
  const double* const model = g.models.data() + first;
  const double* segment = outputs + g.first_segment;
  const double* old = model + g.first_segment;
  for (int s = 0; s < g.arity(); ++s) {
    const std::int32_t v = entry_vertex[first_entry[e] + s];
    const int size = g.dims[static_cast<std::size_t>(s)];
    if (is_free(v)) add_pending(v, segment, old);
    segment += size, old += size;
  }
  const double change = outputs[0] - model[0];
  if (how.take_H) {
    g.models.write(first, outputs, g.num_outputs);
    if (flags[e] & kStale) flags.set(e, static_cast<std::uint8_t>(flags[e] & ~kStale));
  } else {
    if (is_stale(e, model + 1, outputs + 1, how)) {
      g.models.write(first, outputs, g.num_outputs);
      flags.set(e, static_cast<std::uint8_t>(flags[e] | kStale));
      return change;
    }
    g.models.set(first, outputs[0]);
    g.models.write(first + g.first_segment, outputs + g.first_segment, g.state_dim);
  }
  return change;
}

double Problem::take_prior(std::int32_t e, const Evaluation& how) {
  const Prior& prior = *priors[edge_row[e]];
  const PriorModel& old = *prior_models[edge_row[e]];
  std::vector<double> H, b;
  const double rho = linearize_prior(prior, H, b);
  double sum = rho * 0.0, difference = 0.0, size = 0.0;
  for (const double value : b) sum += value * 0.0;
  for (std::size_t i = 0; i < H.size(); ++i) {
    sum += H[i] * 0.0;
    difference += (H[i] - (*old.H)[i]) * (H[i] - (*old.H)[i]);
    size += H[i] * H[i];
  }
  if (!(sum == 0.0)) {
    if (!how.must_be_finite) return std::numeric_limits<double>::infinity();
    throw Refused("The error of " + name(e) + " is not finite.");
  }
  for (std::size_t s = 0; s < prior.vertices.size(); ++s)
    for (int i = prior.first[s]; is_free(prior.vertices[s]) && i < prior.first[s + 1]; ++i)
      add_pending(prior.vertices[s], i - prior.first[s],
                  b[static_cast<std::size_t>(i)] - old.gradient[static_cast<std::size_t>(i)]);
  const double change = rho - old.chi2;
  const bool is_stale = !how.take_H && difference > how.tolerance * how.tolerance * size;
  if (is_stale) flags.set(e, static_cast<std::uint8_t>(flags[e] | kStale));
  auto model = std::make_shared<PriorModel>();
  model->chi2 = rho;
  model->H = how.take_H || is_stale ? std::make_shared<const std::vector<double>>(std::move(H)) : old.H;
  model->gradient = std::move(b);
  prior_models.set(edge_row[e], std::move(model));
  return change;
}

double Problem::evaluate(const std::vector<std::int32_t>& edges, const Evaluation& how) {
  static thread_local std::vector<std::vector<std::int32_t>> by_kind;
  by_kind.resize(edge_kinds.size());
  for (auto& own : by_kind) own.clear();
  double change = 0.0;
  for (const std::int32_t e : edges) {
    if (edge_kind[e] < 0) {
      change += take_prior(e, how);
    } else {
      by_kind[static_cast<std::size_t>(edge_kind[e])].push_back(e);
    }
  }
  // edges whose outputs stay in the cache, a thread's of many, and those that another one is worth waking for
  constexpr std::int64_t kAtOnce = 2 * kLanes, kShare = 4 * kAtOnce, kWorthWaking = 2048;
  ThreadPool& pool = ThreadPool::instance();
  for (std::size_t k = 0; k < edge_kinds.size(); ++k) {
    const auto& own = by_kind[k];
    if (own.empty()) continue;
    const int row_stride = stride(static_cast<int>(k));
    static thread_local vm::AlignedVector<double> out;
    const auto total = static_cast<std::int64_t>(own.size());
    const int threads = pool.threads_for(total, kWorthWaking);
    const std::int64_t share = threads > 1 ? kShare : kAtOnce, round = share * threads;
    out.resize(std::max(out.size(), static_cast<std::size_t>(std::min(total, round) * row_stride)));
    double* const outputs = out.data();
    for (std::int64_t begin = 0; begin < total; begin += round) {
      const std::int64_t number = std::min(round, total - begin);
      const auto linearize_share = [&](int t) {
        const std::int64_t first = share * t;
        linearize(static_cast<int>(k), own.data() + begin + first, std::min(share, number - first),
                  outputs + first * row_stride);
      };
      pool.run_shares(static_cast<int>((number + share - 1) / share), std::ref(linearize_share));
      for (std::int64_t i = 0; i < number; ++i)
        change += take_model(own[static_cast<std::size_t>(begin + i)], outputs + i * row_stride, how);
    }
  }
  if (std::isfinite(change)) add_chi2(change);
  return change;
}

// Free vertices of edges, moved by `steps` while this lives.
class Problem::Elsewhere {
 public:
  Elsewhere(Problem& problem, const std::vector<std::int32_t>& edges, const double* steps)
      : problem_(problem), vertices_(problem.kinds.size()), swapped_(problem.kinds.size()) {
    if (steps == nullptr) return;
    for (const std::int32_t e : edges)
      for (int s = 0; s < problem.arity(e); ++s)
        if (const std::int32_t v = problem.vertices_of(e)[s]; problem.is_free(v))
          vertices_[static_cast<std::size_t>(problem.kind[v])].push_back(v);
    for (std::size_t k = 0; k < vertices_.size(); ++k) {
      std::sort(vertices_[k].begin(), vertices_[k].end());
      vertices_[k].erase(std::unique(vertices_[k].begin(), vertices_[k].end()), vertices_[k].end());
      problem.oplus(static_cast<int>(k), vertices_[k], steps, 1.0, swapped_[k]);
    }
    swap();
  }
  ~Elsewhere() { swap(); }
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

 private:
  void swap() {
    for (std::size_t k = 0; k < vertices_.size(); ++k) {
      VertexKind& own = *problem_.kinds[k];
      double* with = swapped_[k].data();
      for (const std::int32_t v : vertices_[k]) {
        double* const estimate =
            own.estimate.borrow(static_cast<std::int64_t>(problem_.row[v]) * own.storage_dim);
        with = std::swap_ranges(estimate, estimate + own.storage_dim, with);
      }
    }
  }
  Problem& problem_;
  std::vector<std::vector<std::int32_t>> vertices_;  // of each kind
  std::vector<std::vector<double>> swapped_;
};

std::vector<vm::AlignedVector<double>> Problem::outputs_at(const std::vector<std::int32_t>& edges,
                                                           const double* steps) {
  const Elsewhere elsewhere(*this, edges, steps);
  std::vector<vm::AlignedVector<double>> outputs(edges.size());
  vm::AlignedVector<double> out;
  for (int own = 0; own < static_cast<int>(edge_kinds.size()); ++own) {
    std::vector<std::int32_t> of_kind;
    std::vector<std::size_t> places;
    for (std::size_t k = 0; k < edges.size(); ++k)
      if (edge_kind[edges[k]] == own) of_kind.push_back(edges[k]), places.push_back(k);
    const auto row_stride = static_cast<std::size_t>(stride(own));
    out.resize(std::max(out.size(), of_kind.size() * row_stride));
    linearize(own, of_kind.data(), static_cast<std::int64_t>(of_kind.size()), out.data());
    for (std::size_t k = 0; k < places.size(); ++k) {
      const double* const first = out.data() + k * row_stride;
      outputs[places[k]].assign(first, first + row_stride);
    }
  }
  return outputs;
}

// A new edge's model so far is zero, and so are its shares of chi2 and of the gradient.
double Problem::evaluate_at(const std::vector<std::int32_t>& edges, const double* steps) {
  Evaluation how;
  how.take_H = how.must_be_finite = true;
  double change = 0.0, shift = 0.0;
  std::vector<std::int32_t> compiled;
  for (const std::int32_t e : edges) {
    if (edge_kind[e] < 0) {
      change += take_prior(e, how);  // its derivatives are far more work than its model is worth
    } else {
      compiled.push_back(e);
    }
  }
  std::vector<vm::AlignedVector<double>> outputs = outputs_at(compiled, steps);
  for (std::size_t k = 0; k < compiled.size(); ++k) {
    const double present_rho = outputs[k][0];
    shift_model(compiled[k], steps, outputs[k].data());
    shift += outputs[k][0] - present_rho;
    change += take_model(compiled[k], outputs[k].data(), how);
  }
  add_chi2(change);
  return shift;
}

double Problem::exact_chi2(const double* steps) const {
  std::vector<std::vector<double>> moved(kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k)
    moved[k].assign(kinds[k]->estimate.data(), kinds[k]->estimate.data() + kinds[k]->estimate.size());
  std::vector<std::vector<std::int32_t>> by_kind(kinds.size());
  for (std::int32_t v = 0; v < num_places() && steps != nullptr; ++v)
    if (is_free(v)) by_kind[static_cast<std::size_t>(kind[v])].push_back(v);
  std::vector<double> values;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    oplus(static_cast<int>(k), by_kind[k], steps, 1.0, values);
    const auto storage = static_cast<std::size_t>(kinds[k]->storage_dim);
    for (std::size_t i = 0; i < by_kind[k].size(); ++i)
      std::copy_n(values.data() + i * storage, storage,
                  moved[k].data() + static_cast<std::size_t>(row[by_kind[k][i]]) * storage);
  }
  long double sum = 0.0L;
  std::vector<std::vector<std::int32_t>> edges(edge_kinds.size());
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(edge_kind.size()); ++e) {
    if (!is_active(e)) continue;
    if (edge_kind[e] < 0) {
      std::vector<double> H, b;
      sum += linearize_prior(*priors[edge_row[e]], H, b, &moved);
    } else {
      edges[static_cast<std::size_t>(edge_kind[e])].push_back(e);
    }
  }
  vm::AlignedVector<double> out;
  for (std::size_t k = 0; k < edge_kinds.size(); ++k) {
    const auto row_stride = static_cast<std::size_t>(stride(static_cast<int>(k)));
    out.resize(std::max(out.size(), row_stride * kLanes));
    for (std::size_t begin = 0; begin < edges[k].size(); begin += kLanes) {
      const std::size_t number = std::min<std::size_t>(kLanes, edges[k].size() - begin);
      linearize(static_cast<int>(k), edges[k].data() + begin, static_cast<std::int64_t>(number), out.data(),
                &moved);
      for (std::size_t i = 0; i < number; ++i) sum += out[i * row_stride];
    }
  }
  return static_cast<double>(sum);
}

}  // namespace graphopt::online
