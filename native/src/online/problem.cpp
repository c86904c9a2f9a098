#include "online/problem.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "vm/transpose.h"

namespace graphopt::online {

using vm::kLanes;
using vm::kVectorLanes;

Problem::Problem(Journal& j)
    : journal(j),
      vertex_of_id(j),
      edge_of_handle(j),
      id(j),
      state(j),
      kind(j),
      row(j),
      offset(j),
      first_of(j),
      gradient(j),
      edge_kind(j),
      edge_row(j),
      first_entry(j),
      flags(j),
      handle(j),
      entry_vertex(j),
      entry_edge(j),
      entry_next(j),
      entry_previous(j),
      priors(j),
      counts(j),
      vertex_places_(j),
      edge_places_(j),
      prior_places_(j),
      total_(j),
      prior_chi2_(j) {
  total_.grow(2, 0.0);
  counts.grow(kNumCounts, 0);
}

int Problem::add_vertex_kind(vm::ProgramPtr oplus, int storage_dim) {
  const int tangent_dim = oplus->num_inputs() - storage_dim;
  kinds.push_back(std::make_unique<VertexKind>(journal, std::move(oplus), storage_dim, tangent_dim));
  return static_cast<int>(kinds.size()) - 1;
}

int Problem::add_parameter_set(int columns) {
  parameters.push_back({columns, {}});
  return static_cast<int>(parameters.size()) - 1;
}

void Problem::set_parameters(int set, std::vector<double> values) {
  parameters[static_cast<std::size_t>(set)].values = std::move(values);
}

int Problem::add_edge_kind(vm::ProgramPtr linearize, vm::ProgramPtr kernel, std::vector<int> vertex_kinds,
                           std::vector<int> parameter_sets, int data_dim) {
  auto own = std::make_unique<EdgeKind>(journal);
  EdgeKind& k = *own;
  k.vertex_kinds = std::move(vertex_kinds);
  k.parameter_sets = std::move(parameter_sets);
  k.data_dim = data_dim;
  int inputs = 0;
  for (const int v : k.vertex_kinds) {
    k.dims.push_back(kinds[static_cast<std::size_t>(v)]->tangent_dim);
    inputs += kinds[static_cast<std::size_t>(v)]->storage_dim;
    k.state_dim += k.dims.back();
  }
  for (const int p : k.parameter_sets) inputs += parameters[static_cast<std::size_t>(p)].columns;
  k.data_registers.assign(linearize->input_registers.begin() + inputs, linearize->input_registers.end());
  k.num_outputs = linearize->num_outputs();
  k.first_segment = k.num_outputs - k.state_dim;
  k.output_registers = linearize->output_registers;
  k.linearize = std::move(linearize);
  k.kernel = std::move(kernel);
  if (static_cast<int>(k.data_registers.size()) + (k.kernel ? 1 : 0) != data_dim)
    throw std::invalid_argument("Online: data_dim does not fit the program");
  edge_kinds.push_back(std::move(own));
  return static_cast<int>(edge_kinds.size()) - 1;
}

std::int32_t Problem::add_vertex(int k, std::int64_t vertex_id, const double* values, bool fixed) {
  VertexKind& own = *kinds[static_cast<std::size_t>(k)];
  const auto v = static_cast<std::int32_t>(vertex_places_.take(1));
  if (v == num_places()) {
    id.push_back(0);
    state.push_back(VertexState::kUnused);
    kind.push_back(0);
    row.push_back(0);
    offset.push_back(0);
    first_of.push_back(-1);
  }
  const std::int64_t r = own.places.take(1);
  own.estimate.grow((r + 1) * own.storage_dim, 0.0);
  own.estimate.write(r * own.storage_dim, values, own.storage_dim);
  id.set(v, vertex_id);
  state.set(v, fixed ? VertexState::kFixed : VertexState::kFree);
  kind.set(v, static_cast<std::int16_t>(k));
  row.set(v, static_cast<std::int32_t>(r));
  std::int64_t first = own.scalars.take(0);
  if (first == 0) {  // there was none of this size to use again
    first = gradient.size() + 1;
    gradient.grow(gradient.size() + own.tangent_dim, 0.0);
  }
  offset.set(v, first - 1);
  first_of.set(v, -1);
  vertex_of_id.set(vertex_id, v);
  count(kVertices, 1);
  if (!fixed) count(kFreeVertices, 1), count(kScalars, own.tangent_dim);
  return v;
}

void Problem::remove_vertex(std::int32_t v) {
  VertexKind& own = *kinds[static_cast<std::size_t>(kind[v])];
  if (is_free(v)) count(kFreeVertices, -1), count(kScalars, -own.tangent_dim);
  count(kVertices, -1);
  own.places.give_back(row[v]);
  own.scalars.give_back(offset[v] + 1);
  const std::vector<double> zeros(static_cast<std::size_t>(own.tangent_dim), 0.0);
  gradient.write(offset[v], zeros.data(), own.tangent_dim);
  state.set(v, VertexState::kUnused);
  vertex_places_.give_back(v);
}

void Problem::link(std::int64_t entry, std::int32_t v, std::int32_t e) {
  if (entry_vertex.size() <= entry) {
    entry_vertex.grow(entry + 1, -1);
    entry_edge.grow(entry + 1, -1);
    entry_next.grow(entry + 1, -1);
    entry_previous.grow(entry + 1, -1);
  }
  const std::int32_t next = first_of[v], own = static_cast<std::int32_t>(entry);
  entry_vertex.set(entry, v);
  entry_edge.set(entry, e);
  entry_next.set(entry, next);
  entry_previous.set(entry, -1);
  if (next >= 0) entry_previous.set(next, own);
  first_of.set(v, own);
}

std::int32_t Problem::new_edge(int k, std::int32_t r, std::int64_t its_handle, const std::int32_t* vertices,
                               int its_arity) {
  const auto e = static_cast<std::int32_t>(edge_places_.take(1));
  if (e == edge_kind.size()) {
    edge_kind.push_back(0);
    edge_row.push_back(0);
    first_entry.push_back(0);
    flags.push_back(0);
    handle.push_back(0);
  }
  while (static_cast<int>(entry_places_.size()) <= its_arity)
    entry_places_.push_back(std::make_unique<Places>(journal));
  std::int64_t first = entry_places_[static_cast<std::size_t>(its_arity)]->take(0);
  if (first == 0) {
    first = entry_vertex.size() + 1;
  }
  --first;
  edge_kind.set(e, static_cast<std::int16_t>(k));
  edge_row.set(e, r);
  first_entry.set(e, first);
  flags.set(e, kUsed);
  handle.set(e, its_handle);
  edge_of_handle.set(its_handle, e);
  for (int s = 0; s < its_arity; ++s) link(first + s, vertices[s], e);
  count(kEdges, 1);
  return e;
}

std::int32_t Problem::add_edge(int k, const std::int32_t* vertices, const std::int32_t* parameter_rows,
                               const double* values, std::int64_t its_handle) {
  EdgeKind& own = *edge_kinds[static_cast<std::size_t>(k)];
  const std::int64_t r = own.places.take(1);
  if (own.chi2_terms.size() <= r) {
    own.chi2_terms.grow(r + 1, 0.0);
    own.state.grow((r + 1) * own.state_dim, 0.0);
    own.data.grow((r + 1) * own.data_dim, 0.0);
  }
  own.data.write(r * own.data_dim, values, own.data_dim);
  const std::int32_t e = new_edge(k, static_cast<std::int32_t>(r), its_handle, vertices, own.arity());
  const auto num_parameters = static_cast<std::int64_t>(own.parameter_sets.size());
  own.parameter_rows.grow((r + 1) * num_parameters, 0);
  own.parameter_rows.write(r * num_parameters, parameter_rows, num_parameters);
  return e;
}

std::int32_t Problem::add_prior(std::shared_ptr<const Prior> prior, std::int64_t its_handle) {
  const std::int64_t r = prior_places_.take(1);
  if (priors.size() <= r) {
    priors.grow(r + 1);
    prior_chi2_.grow(r + 1, 0.0);
  }
  const std::vector<std::int32_t> vertices = prior->vertices;
  priors.set(r, std::move(prior));
  prior_chi2_.set(r, 0.0);
  const std::int32_t e = new_edge(-1, static_cast<std::int32_t>(r), its_handle, vertices.data(),
                                  static_cast<int>(vertices.size()));
  return e;
}

void Problem::remove_edge(std::int32_t e) {
  drop_share(e);
  if (flags[e] & kStale) count(kStaleEdges, -1);
  const int its_arity = arity(e);
  for (int s = 0; s < its_arity; ++s) {
    const std::int64_t entry = first_entry[e] + s;
    const std::int32_t next = entry_next[entry], previous = entry_previous[entry];
    if (next >= 0) entry_previous.set(next, previous);
    if (previous >= 0) {
      entry_next.set(previous, next);
    } else {
      first_of.set(entry_vertex[entry], next);
    }
  }
  entry_places_[static_cast<std::size_t>(its_arity)]->give_back(first_entry[e] + 1);
  if (edge_kind[e] < 0) {
    priors.set(edge_row[e], nullptr);
    prior_places_.give_back(edge_row[e]);
  } else {
    edge_kinds[static_cast<std::size_t>(edge_kind[e])]->places.give_back(edge_row[e]);
  }
  edge_of_handle.erase(handle[e]);
  flags.set(e, 0);
  edge_places_.give_back(e);
  count(kEdges, -1);
}

double Problem::chi2_of(std::int32_t e) const {
  return edge_kind[e] < 0 ? prior_chi2_[edge_row[e]] : kind_of(e).chi2_terms[edge_row[e]];
}

std::string Problem::name(std::int32_t e) const {
  std::string text = edge_kind[e] < 0 ? "the prior" : "the edge with handle " + std::to_string(handle[e]);
  text += arity(e) == 1 ? " of vertex " : " between vertices ";
  for (int s = 0; s < arity(e); ++s)
    text += (s > 0 ? ", " : "") + std::to_string(id[entry_vertex[first_entry[e] + s]]);
  return text;
}

// ---------------------------------------------------------------------- evaluation

int Problem::stride(int k) const {
  const int n = edge_kinds[static_cast<std::size_t>(k)]->num_outputs;
  return (n + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
}

namespace {

// Registers of one thread, kept from call to call: filling in constants takes longer than a few edges.
struct Frames {
  struct Frame {
    vm::ProgramPtr program;
    vm::AlignedVector<double> memory;
    double* prepare(const vm::ProgramPtr& next, int lanes) {
      if (program != next) {
        memory.resize(static_cast<std::size_t>(next->num_registers) * static_cast<std::size_t>(lanes));
        vm::fill_constants(*next, memory.data(), lanes);
        program = next;
      }
      return memory.data();
    }
  };
  // A few programs take turns: each has a frame.
  static constexpr std::size_t kMost = 8;
  std::vector<std::unique_ptr<Frame>> wide, narrow;
  Frame kernel;
  static Frame& of(std::vector<std::unique_ptr<Frame>>& frames, const vm::ProgramPtr& program) {
    for (auto& frame : frames)
      if (frame->program == program) return *frame;
    if (frames.size() == kMost) frames.erase(frames.begin());
    frames.push_back(std::make_unique<Frame>());
    return *frames.back();
  }
};

Frames& frames() {
  thread_local Frames own;
  return own;
}

}  // namespace

void Problem::linearize(int k, const std::int32_t* edges, std::int64_t count, double* out) const {
  const EdgeKind& g = *edge_kinds[static_cast<std::size_t>(k)];
  const vm::Program& program = *g.linearize;
  const bool is_narrow = program.narrow_code != nullptr;
  const int width = is_narrow ? kVectorLanes : kLanes;
  Frames& own = frames();
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
      const VertexKind& vertex_kind =
          *kinds[static_cast<std::size_t>(g.vertex_kinds[static_cast<std::size_t>(s)])];
      load(vertex_kind.estimate.data(), vertex_kind.storage_dim);
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

void Problem::add_share(double rho, double sign) {
  // two numbers hold the sum, so that many updates do not wear it off
  const double x = sign * rho, high = total_[0], sum = high + x, part = sum - high;
  const double rest = (high - (sum - part)) + (x - part);
  total_.set(0, sum);
  total_.set(1, total_[1] + rest);
}

void Problem::take_outputs(std::int32_t e, const double* outputs) {
  EdgeKind& g = *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  double check = 0.0;
  for (int o = 0; o < g.num_outputs; ++o) check += outputs[o] * 0.0;
  if (!(check == 0.0))
    throw Refused("The error or the Jacobian of " + name(e) +
                  " is not finite: check its measurement and the estimates of its vertices.");
  const std::int64_t r = edge_row[e];
  const double rho = outputs[0], before = g.chi2_terms[r];
  if (rho != before) {
    add_share(rho - before, 1.0);
    g.chi2_terms.set(r, rho);
  }
  const double* segment = outputs + g.first_segment;
  std::int64_t at = r * g.state_dim;
  for (int s = 0; s < g.arity(); ++s) {
    const std::int64_t first = offset[entry_vertex[first_entry[e] + s]];
    for (int i = 0; i < g.dims[static_cast<std::size_t>(s)]; ++i, ++segment, ++at) {
      const double change = *segment - g.state[at];
      if (change == 0.0) continue;
      gradient.set(first + i, gradient[first + i] + change);
      g.state.set(at, *segment);
    }
  }
}

void Problem::drop_share(std::int32_t e) {
  if (edge_kind[e] < 0) {
    const Prior& prior = *priors[edge_row[e]];
    add_share(prior_chi2_[edge_row[e]], -1.0);
    prior_chi2_.set(edge_row[e], 0.0);
    auto changed = std::make_shared<Prior>(prior);
    for (std::size_t s = 0; s < prior.vertices.size(); ++s) {
      const std::int64_t first = offset[prior.vertices[s]];
      for (int i = prior.first[s]; i < prior.first[s + 1]; ++i) {
        const std::int64_t at = first + i - prior.first[s];
        gradient.set(at, gradient[at] - prior.gradient[static_cast<std::size_t>(i)]);
        changed->gradient[static_cast<std::size_t>(i)] = 0.0;
      }
    }
    priors.set(edge_row[e], std::move(changed));
    return;
  }
  EdgeKind& g = *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  const std::int64_t r = edge_row[e];
  add_share(g.chi2_terms[r], -1.0);
  g.chi2_terms.set(r, 0.0);
  std::int64_t at = r * g.state_dim;
  for (int s = 0; s < g.arity(); ++s) {
    const std::int64_t first = offset[entry_vertex[first_entry[e] + s]];
    for (int i = 0; i < g.dims[static_cast<std::size_t>(s)]; ++i, ++at) {
      gradient.set(first + i, gradient[first + i] - g.state[at]);
      g.state.set(at, 0.0);
    }
  }
}

void Problem::take_prior(std::int32_t e) {
  std::vector<double> H, b;
  const auto prior = priors[edge_row[e]];
  const double rho = linearize_prior(*prior, H, b);
  add_share(rho - prior_chi2_[edge_row[e]], 1.0);
  prior_chi2_.set(edge_row[e], rho);
  auto changed = std::make_shared<Prior>(*prior);
  for (std::size_t s = 0; s < prior->vertices.size(); ++s) {
    const std::int64_t first = offset[prior->vertices[s]];
    for (int i = prior->first[s]; i < prior->first[s + 1]; ++i) {
      const std::int64_t at = first + i - prior->first[s];
      gradient.set(
          at, gradient[at] + b[static_cast<std::size_t>(i)] - prior->gradient[static_cast<std::size_t>(i)]);
    }
  }
  changed->gradient = std::move(b);
  priors.set(edge_row[e], std::move(changed));
}

void Problem::evaluate(const std::vector<std::int32_t>& edges) {
  std::vector<std::vector<std::int32_t>> by_kind(edge_kinds.size());
  for (const std::int32_t e : edges) {
    if (edge_kind[e] < 0) {
      take_prior(e);
    } else {
      by_kind[static_cast<std::size_t>(edge_kind[e])].push_back(e);
    }
  }
  constexpr std::int64_t kAtOnce = 4 * kLanes;  // so that outputs stay in the cache
  for (std::size_t k = 0; k < by_kind.size(); ++k) {
    const auto& own = by_kind[k];
    if (own.empty()) continue;
    const int row_stride = stride(static_cast<int>(k));
    static thread_local vm::AlignedVector<double> out;
    const auto total = static_cast<std::int64_t>(own.size());
    out.resize(static_cast<std::size_t>(std::min(total, kAtOnce) * row_stride));
    for (std::int64_t begin = 0; begin < total; begin += kAtOnce) {
      const std::int64_t count = std::min(kAtOnce, total - begin);
      linearize(static_cast<int>(k), own.data() + begin, count, out.data());
      for (std::int64_t i = 0; i < count; ++i)
        take_outputs(own[static_cast<std::size_t>(begin + i)], out.data() + i * row_stride);
    }
  }
}

void Problem::sum_again() {
  std::vector<double> g(static_cast<std::size_t>(gradient.size()), 0.0);
  long double total = 0.0L;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(edge_kind.size()); ++e) {
    if (!is_active(e)) continue;
    total += chi2_of(e);
    const bool is_prior = edge_kind[e] < 0;
    const double* segment =
        is_prior ? priors[edge_row[e]]->gradient.data()
                 : kind_of(e).state.data() + static_cast<std::int64_t>(edge_row[e]) * kind_of(e).state_dim;
    for (int s = 0; s < arity(e); ++s) {
      const std::int32_t v = entry_vertex[first_entry[e] + s];
      for (int i = 0; i < dim(v); ++i) g[static_cast<std::size_t>(offset[v] + i)] += *segment++;
    }
  }
  total_.set(0, static_cast<double>(total));
  total_.set(1, static_cast<double>(total - static_cast<long double>(static_cast<double>(total))));
  for (std::int64_t i = 0; i < gradient.size(); ++i)
    if (gradient[i] != g[static_cast<std::size_t>(i)]) gradient.set(i, g[static_cast<std::size_t>(i)]);
}

// ---------------------------------------------------------------------- oplus and its inverse

namespace {

// outputs(l, :) = oplus(estimates(l, :), steps(l, :)) for up to kLanes lanes; all row-major.
void run_oplus(const vm::ProgramPtr& compiled, int storage, int tangent, const double* const* estimates,
               const double* const* steps, int lanes, double* const* outputs) {
  thread_local Frames own;
  const vm::Program& program = *compiled;
  double* const frame = Frames::of(own.wide, compiled).prepare(compiled, kLanes);
  const int filled = std::min(kLanes, (lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes);
  for (int k = 0; k < storage + tangent; ++k) {
    const std::int32_t target = program.input_registers[static_cast<std::size_t>(k)];
    if (target < 0) continue;
    double* const lane = frame + static_cast<std::size_t>(target) * kLanes;
    for (int l = 0; l < filled; ++l) {
      const int from = std::min(l, lanes - 1);
      lane[l] = k < storage ? estimates[from][k] : steps[from][k - storage];
    }
  }
  vm::execute(program, frame, vm::RobustContext{}, lanes);
  for (int k = 0; k < storage; ++k) {
    const double* const lane =
        frame + static_cast<std::size_t>(program.output_registers[static_cast<std::size_t>(k)]) * kLanes;
    for (int l = 0; l < lanes; ++l) outputs[l][k] = lane[l];
  }
}

constexpr double kDifference = 1e-5;  // of central differences

// Derivative of oplus(from, .) at `step`: (storage, tangent).
Eigen::MatrixXd oplus_derivative(const VertexKind& kind, const double* from, const Eigen::VectorXd& step,
                                 Eigen::VectorXd* value) {
  const int s = kind.storage_dim, t = kind.tangent_dim;
  Eigen::MatrixXd steps(t, 2 * t + 1), results(s, 2 * t + 1);
  for (int c = 0; c < 2 * t + 1; ++c) steps.col(c) = step;
  for (int c = 0; c < t; ++c) steps(c, c) += kDifference, steps(c, t + c) -= kDifference;
  for (int first = 0; first < 2 * t + 1; first += kLanes) {
    const int lanes = std::min(kLanes, 2 * t + 1 - first);
    const double *estimates[kLanes], *moves[kLanes];
    double* outputs[kLanes];
    for (int l = 0; l < lanes; ++l) {
      estimates[l] = from;
      moves[l] = steps.col(first + l).data();
      outputs[l] = results.col(first + l).data();
    }
    run_oplus(kind.oplus, s, t, estimates, moves, lanes, outputs);
  }
  if (value != nullptr) *value = results.col(2 * t);
  return (results.leftCols(t) - results.middleCols(t, t)) / (2.0 * kDifference);
}

// d with to = from oplus d, by Gauss-Newton, and the derivative of d by a step at `to`.
Eigen::VectorXd difference(const VertexKind& kind, const double* from, const double* to,
                           Eigen::MatrixXd* derivative) {
  const Eigen::Map<const Eigen::VectorXd> goal(to, kind.storage_dim);
  Eigen::VectorXd d = Eigen::VectorXd::Zero(kind.tangent_dim), value;
  constexpr int kMostIterations = 30;
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    const Eigen::MatrixXd a = oplus_derivative(kind, from, d, &value);
    const Eigen::VectorXd step = (a.transpose() * a).ldlt().solve(a.transpose() * (goal - value));
    d += step;
    if (!(step.norm() > 1e-14 * (1.0 + d.norm()))) break;
  }
  const Eigen::MatrixXd a = oplus_derivative(kind, from, d, nullptr);
  const Eigen::MatrixXd b = oplus_derivative(kind, to, Eigen::VectorXd::Zero(kind.tangent_dim), nullptr);
  *derivative = (a.transpose() * a).ldlt().solve(a.transpose() * b);
  return d;
}

}  // namespace

double Problem::linearize_prior(const Prior& prior, std::vector<double>& H, std::vector<double>& b) const {
  const int m = prior.first.back();
  Eigen::VectorXd d(m);
  Eigen::MatrixXd J = Eigen::MatrixXd::Zero(m, m);
  const double* origin = prior.origin.data();
  for (std::size_t s = 0; s < prior.vertices.size(); ++s) {
    const std::int32_t v = prior.vertices[s];
    const VertexKind& own = *kinds[static_cast<std::size_t>(kind[v])];
    const int first = prior.first[s], n = prior.first[s + 1] - first;
    Eigen::MatrixXd derivative = Eigen::MatrixXd::Identity(n, n);
    if (std::equal(origin, origin + own.storage_dim, estimate(v))) {
      d.segment(first, n).setZero();
    } else {
      d.segment(first, n) = difference(own, origin, estimate(v), &derivative);
    }
    J.block(first, first, n, n) = derivative;
    origin += own.storage_dim;
  }
  const Eigen::Map<const Eigen::MatrixXd> given(prior.H.data(), m, m);
  const Eigen::Map<const Eigen::VectorXd> given_b(prior.b.data(), m);
  const Eigen::VectorXd product = given * d;
  H.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(m));
  b.resize(static_cast<std::size_t>(m));
  Eigen::Map<Eigen::MatrixXd>(H.data(), m, m) = J.transpose() * given * J;
  Eigen::Map<Eigen::VectorXd>(b.data(), m) = J.transpose() * (given_b - product);
  return d.dot(product) - 2.0 * given_b.dot(d) + prior.constant;
}

void Problem::oplus(const std::vector<std::int32_t>& vertices, const double* dx, double scale) {
  std::vector<std::vector<std::int32_t>> by_kind(kinds.size());
  for (const std::int32_t v : vertices) by_kind[static_cast<std::size_t>(kind[v])].push_back(v);
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    VertexKind& own = *kinds[k];
    const int s = own.storage_dim, t = own.tangent_dim;
    std::vector<double> moved(static_cast<std::size_t>(s) * kLanes),
        scaled(static_cast<std::size_t>(t) * kLanes);
    for (std::size_t begin = 0; begin < by_kind[k].size(); begin += kLanes) {
      const int lanes = static_cast<int>(std::min<std::size_t>(kLanes, by_kind[k].size() - begin));
      const double *estimates[kLanes], *steps[kLanes];
      double* outputs[kLanes];
      for (int l = 0; l < lanes; ++l) {
        const std::int32_t v = by_kind[k][begin + static_cast<std::size_t>(l)];
        estimates[l] = estimate(v);
        for (int i = 0; i < t; ++i) scaled[static_cast<std::size_t>(l * t + i)] = scale * dx[offset[v] + i];
        steps[l] = scaled.data() + l * t;
        outputs[l] = moved.data() + l * s;
      }
      run_oplus(own.oplus, s, t, estimates, steps, lanes, outputs);
      for (int l = 0; l < lanes; ++l) {
        const std::int32_t v = by_kind[k][begin + static_cast<std::size_t>(l)];
        own.estimate.write(static_cast<std::int64_t>(row[v]) * s, outputs[l], s);
      }
    }
  }
}

}  // namespace graphopt::online
