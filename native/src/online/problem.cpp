#include "online/problem.h"

#include <algorithm>

namespace graphopt::online {

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
      pending(j),
      edge_kind(j),
      edge_row(j),
      first_entry(j),
      flags(j),
      bound(j),
      handle(j),
      entry_vertex(j),
      entry_edge(j),
      entry_next(j),
      entry_previous(j),
      priors(j),
      prior_models(j),
      counts(j),
      vertex_places_(j),
      edge_places_(j),
      prior_places_(j),
      total_(j) {
  total_.grow(2, 0.0);
  counts.grow(kNumCounts, 0);
}

int Problem::add_vertex_kind(vm::ProgramPtr oplus, int storage_dim, bool is_point) {
  const int tangent_dim = oplus->num_inputs() - storage_dim;
  kinds.push_back(
      std::make_unique<VertexKind>(journal, std::move(oplus), storage_dim, tangent_dim, is_point));
  return static_cast<int>(kinds.size()) - 1;
}

int Problem::add_parameter_set(int columns) {
  parameters.push_back({columns, {}});
  return static_cast<int>(parameters.size()) - 1;
}

void Problem::set_parameters(int set, std::vector<double> values) {
  parameters[static_cast<std::size_t>(set)].values = std::move(values);
}

// Of each vertex its own block's triangle by columns, then the blocks with the vertices after it.
void EdgeKind::number_entries() {
  int first = 0;
  diagonal.resize(static_cast<std::size_t>(state_dim));
  const auto add = [&](int row, int column) {
    if (row == column) diagonal[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(entry_row.size());
    entry_row.push_back(row);
    entry_column.push_back(column);
  };
  for (std::size_t a = 0; a < dims.size(); ++a) {
    for (int j = 0; j < dims[a]; ++j)
      for (int i = 0; i <= j; ++i) add(first + i, first + j);
    int other = first + dims[a];
    for (std::size_t b = a + 1; b < dims.size(); ++b) {
      for (int j = 0; j < dims[b]; ++j)
        for (int i = 0; i < dims[a]; ++i) add(first + i, other + j);
      other += dims[b];
    }
    first += dims[a];
  }
}

int Problem::add_edge_kind(vm::ProgramPtr linearize, vm::ProgramPtr kernel, std::vector<int> vertex_kinds,
                           std::vector<int> parameter_sets, int data_dim, int residual_dim) {
  auto own = std::make_unique<EdgeKind>(journal);
  EdgeKind& k = *own;
  k.vertex_kinds = std::move(vertex_kinds);
  k.parameter_sets = std::move(parameter_sets);
  k.data_dim = data_dim;
  k.residual_dim = residual_dim;
  int inputs = 0;
  for (const int v : k.vertex_kinds) {
    k.dims.push_back(kinds[static_cast<std::size_t>(v)]->tangent_dim);
    inputs += kinds[static_cast<std::size_t>(v)]->storage_dim;
    k.state_dim += k.dims.back();
  }
  k.number_entries();
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
    first = pending.size() + 1;
    pending.grow(first - 1 + own.tangent_dim, 0.0);
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
  pending.write(offset[v], zeros.data(), own.tangent_dim);
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
    bound.push_back(0.0);
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
  bound.set(e, 0.0);
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
  own.models.grow((r + 1) * own.num_outputs, 0.0);
  own.data.grow((r + 1) * own.data_dim, 0.0);
  own.data.write(r * own.data_dim, values, own.data_dim);
  const std::int32_t e = new_edge(k, static_cast<std::int32_t>(r), its_handle, vertices, own.arity());
  const auto num_parameters = static_cast<std::int64_t>(own.parameter_sets.size());
  own.parameter_rows.grow((r + 1) * num_parameters, 0);
  own.parameter_rows.write(r * num_parameters, parameter_rows, num_parameters);
  return e;
}

std::int32_t Problem::add_prior(std::shared_ptr<const Prior> prior, std::int64_t its_handle) {
  const std::int64_t r = prior_places_.take(1);
  priors.grow(r + 1);
  prior_models.grow(r + 1);
  const std::vector<std::int32_t> vertices = prior->vertices;
  auto model = std::make_shared<PriorModel>();
  model->gradient.assign(prior->b.size(), 0.0);
  model->H = std::make_shared<const std::vector<double>>(prior->H.size(), 0.0);
  priors.set(r, std::move(prior));
  prior_models.set(r, std::move(model));
  const std::int32_t e = new_edge(-1, static_cast<std::int32_t>(r), its_handle, vertices.data(),
                                  static_cast<int>(vertices.size()));
  return e;
}

void Problem::set_bound(std::int32_t e, double value) {
  count(kBounded, static_cast<std::int64_t>(value > 0.0) - static_cast<std::int64_t>(bound[e] > 0.0));
  bound.set(e, value);
}

void Problem::remove_edge(std::int32_t e) {
  forget_determined();
  set_bound(e, 0.0);
  if (is_active(e)) drop_share(e);
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
    prior_models.set(edge_row[e], nullptr);
    prior_places_.give_back(edge_row[e]);
  } else {
    edge_kinds[static_cast<std::size_t>(edge_kind[e])]->places.give_back(edge_row[e]);
  }
  edge_of_handle.erase(handle[e]);
  flags.set(e, 0);
  edge_places_.give_back(e);
  count(kEdges, -1);
}

std::string Problem::name(std::int32_t e) const {
  std::string text = edge_kind[e] < 0 ? "the prior" : "the edge with handle " + std::to_string(handle[e]);
  text += arity(e) == 1 ? " of vertex " : " between vertices ";
  for (int s = 0; s < arity(e); ++s)
    text += (s > 0 ? ", " : "") + std::to_string(id[entry_vertex[first_entry[e] + s]]);
  return text;
}

}  // namespace graphopt::online
