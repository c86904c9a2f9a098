#include "online/session.h"

#include <algorithm>

namespace graphopt::online {

constexpr std::int64_t kManyOf = 16;  // edges are many where all are less than so many times them

Session::Session()
    : problem_(journal_),
      tree_(journal_, problem_),
      next_handle_(journal_),
      updates_(journal_),
      is_exact_(journal_),
      is_ahead_(journal_),
      nonlinearity_(journal_) {
  next_handle_.push_back(0);
  updates_.push_back(0);
  is_exact_.push_back(0);
  is_ahead_.push_back(0);
  nonlinearity_.grow(kNumNonlinearities, 0.0);
}

void Session::check_open() const {
  if (!is_open_) throw std::logic_error("Online: begin() comes first");
}

void Session::begin() {
  if (is_open_) throw std::logic_error("Online: an update is being made already");
  journal_.set_records(true);
  start_ = journal_.mark();
  stale_before_ = stale_;
  is_open_ = true;
  touched_.clear();
  last_.clear();
  new_edges_.clear();
  leaving_.clear();
  doubtful_.clear();
}

void Session::abort() {
  if (!is_open_) return;
  tree_.forget_marks();
  problem_.forget_changed();
  problem_.forget_determined();
  journal_.undo_to(start_);
  stale_.swap(stale_before_);
  is_open_ = false;
  stop_recording();
}

Report Session::update(const Update& changes, std::vector<std::int64_t>& first_handles) {
  begin();
  try {
    for (const Update::Vertices& own : changes.vertices)
      add_vertices(own.kind, own.ids.data, own.estimates, own.fixed, own.ids.size);
    set_fixed(changes.free.data, changes.free.size, false);
    for (const Update::Edges& own : changes.edges)
      first_handles.push_back(
          add_edges(own.kind, own.vertices, own.parameter_rows, own.data, own.count, own.bounds));
    remove_edges(changes.remove.data, changes.remove.size);
    for (const Update::Replacement& own : changes.replace)
      replace_edge(own.handle, own.edge.kind, own.edge.vertices, own.edge.parameter_rows, own.edge.data);
    switch_edges(changes.switch_off.data, changes.switch_off.size, true);
    switch_edges(changes.switch_on.data, changes.switch_on.size, false);
    trust(changes.trust.data, changes.trust.size);
    set_fixed(changes.fix.data, changes.fix.size, true);
    remove_vertices(changes.remove_vertices.data, changes.remove_vertices.size);
    marginalize(changes.marginalize.data, changes.marginalize.size);
    return commit(false);
  } catch (...) {
    abort();
    throw;
  }
}

std::int32_t Session::vertex(std::int64_t id) const {
  const std::int32_t v = problem_.vertex_of_id.find(id);
  if (v < 0) throw Refused("There is no vertex " + std::to_string(id) + ".");
  return v;
}

std::int32_t Session::edge(std::int64_t handle) const {
  const std::int32_t e = problem_.edge_of_handle.find(handle);
  if (e < 0)
    throw Refused("There is no edge with handle " + std::to_string(handle) +
                  ": it was removed, or marginalized with its vertices.");
  return e;
}

// ---------------------------------------------------------------------- changes

void Session::add_vertices(int kind, const std::int64_t* ids, const double* estimates, const bool* fixed,
                           std::int64_t count) {
  check_open();
  const int storage = problem_.kinds[static_cast<std::size_t>(kind)]->storage_dim;
  for (std::int64_t k = 0; k < count; ++k) {
    if (problem_.vertex_of_id.find(ids[k]) >= 0)
      throw Refused("A vertex with id " + std::to_string(ids[k]) + " exists already.");
    const std::int32_t v = problem_.add_vertex(kind, ids[k], estimates + k * storage, fixed[k]);
    if (problem_.is_free(v)) {
      touched_.push_back(v);
      last_.push_back(v);
    }
  }
}

void Session::touch_edge(std::int32_t e) {
  for (int s = 0; s < problem_.arity(e); ++s) {
    const std::int32_t v = problem_.vertices_of(e)[s];
    if (problem_.is_free(v)) touched_.push_back(v);
  }
}

// Whether an edge takes part follows from its vertices.
void Session::settle(std::int32_t e) {
  bool is_idle = true;
  for (int s = 0; s < problem_.arity(e); ++s)
    is_idle = is_idle && !problem_.is_free(problem_.vertices_of(e)[s]);
  const std::uint8_t flags = problem_.flags[e];
  if (((flags & kIdle) != 0) == is_idle) return;
  if (is_idle && problem_.is_active(e)) problem_.drop_share(e);
  problem_.flags.set(e, static_cast<std::uint8_t>(is_idle ? flags | kIdle : flags & ~kIdle));
  if (!is_idle && problem_.is_active(e)) new_edges_.push_back(e);
}

void Session::insert_edge(std::int32_t e) {
  settle(e);
  if (!problem_.is_active(e)) return;
  new_edges_.push_back(e);
  touch_edge(e);
}

void Session::take_out(std::int32_t e) {
  nonlinearity_.set(kModelShift, 0.0);
  touch_edge(e);
  problem_.remove_edge(e);
}

std::int64_t Session::add_edges(int kind, const std::int64_t* vertices, const std::int32_t* parameter_rows,
                                const double* data, std::int64_t count, const double* bounds) {
  check_open();
  const EdgeKind& own = *problem_.edge_kinds[static_cast<std::size_t>(kind)];
  const int arity = own.arity();
  const auto num_parameters = static_cast<std::int64_t>(own.parameter_sets.size());
  const std::int64_t first = next_handle_[0];
  std::vector<std::int32_t> places(static_cast<std::size_t>(arity));
  std::vector<std::int32_t> added;
  for (std::int64_t k = 0; k < count; ++k) {
    for (int s = 0; s < arity; ++s) {
      const std::int64_t id = vertices[k * arity + s];
      const std::int32_t v = problem_.vertex_of_id.find(id);
      if (v < 0)
        throw Refused("Edge " + std::to_string(k) + " of those to add refers to vertex " +
                      std::to_string(id) + ", which does not exist: add it in the same update.");
      if (problem_.kind[v] != own.vertex_kinds[static_cast<std::size_t>(s)])
        throw Refused("Edge " + std::to_string(k) + " of those to add refers to vertex " +
                      std::to_string(id) + ", which has another type.");
      for (int before = 0; before < s; ++before)
        if (places[static_cast<std::size_t>(before)] == v)
          throw Refused("Edge " + std::to_string(k) + " of those to add names vertex " + std::to_string(id) +
                        " twice.");
      places[static_cast<std::size_t>(s)] = v;
    }
    added.push_back(problem_.add_edge(kind, places.data(), parameter_rows + k * num_parameters,
                                      data + k * own.data_dim, first + k));
  }
  next_handle_.set(0, first + count);
  for (std::int64_t k = 0; k < count && bounds != nullptr; ++k) {
    if (!(bounds[k] > 0.0)) continue;
    const std::int32_t e = added[static_cast<std::size_t>(k)];
    problem_.set_bound(e, bounds[k]);
    problem_.flags.set(e, static_cast<std::uint8_t>(problem_.flags[e] | kOutlier));  // until it is judged
    doubtful_.push_back(e);
  }
  for (const std::int32_t e : added) insert_edge(e);
  return first;
}

void Session::replace_edge(std::int64_t handle, int kind, const std::int64_t* vertices,
                           const std::int32_t* parameter_rows, const double* data) {
  const std::int32_t old = edge(handle);
  const bool is_off = (problem_.flags[old] & kOff) != 0;
  const double bound = problem_.bound[old];
  take_out(old);
  const std::int64_t next = next_handle_[0];
  next_handle_.set(0, handle);
  add_edges(kind, vertices, parameter_rows, data, 1, &bound);
  next_handle_.set(0, next);
  if (is_off) switch_edges(&handle, 1, true);
}

void Session::put_edge(std::int64_t its_handle, int kind, const std::int64_t* vertices,
                       const std::int32_t* parameter_rows, const double* data) {
  next_handle_.set(0, its_handle);
  add_edges(kind, vertices, parameter_rows, data, 1);
}

void Session::put_prior(std::int64_t its_handle, Prior prior, const std::vector<std::int64_t>& ids) {
  check_open();
  prior.first.assign(1, 0);
  for (const std::int64_t id : ids) {
    prior.vertices.push_back(vertex(id));
    prior.first.push_back(prior.first.back() + problem_.dim(prior.vertices.back()));
  }
  if (prior.first.back() != static_cast<int>(prior.b.size()))
    throw Refused("The prior does not fit its vertices.");
  insert_edge(problem_.add_prior(std::make_shared<const Prior>(std::move(prior)), its_handle));
}

void Session::remove_edges(const std::int64_t* handles, std::int64_t count) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) take_out(edge(handles[k]));
}

void Session::switch_edges(const std::int64_t* handles, std::int64_t count, bool off) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t e = edge(handles[k]);
    const std::uint8_t flags = problem_.flags[e];
    if (((flags & kOff) != 0) == off) continue;
    if (off && problem_.is_active(e)) problem_.drop_share(e);
    nonlinearity_.set(kModelShift, 0.0);
    problem_.flags.set(e, static_cast<std::uint8_t>(off ? flags | kOff : flags & ~kOff));
    touch_edge(e);
    if (!off && problem_.is_active(e)) new_edges_.push_back(e);
  }
}

void Session::fix(std::int32_t v) {
  touched_.push_back(v);
  for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry])
    touch_edge(problem_.entry_edge[entry]);
  for (int i = 0; i < problem_.dim(v); ++i) problem_.pending.set(problem_.offset[v] + i, 0.0);
  problem_.state.set(v, VertexState::kFixed);
  problem_.count(Problem::kFreeVertices, -1);
  problem_.count(Problem::kScalars, -problem_.dim(v));
  for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry])
    settle(problem_.entry_edge[entry]);
}

void Session::release(std::int32_t v) {
  problem_.forget_determined();
  touched_.push_back(v);
  problem_.state.set(v, VertexState::kFree);
  problem_.count(Problem::kFreeVertices, 1);
  problem_.count(Problem::kScalars, problem_.dim(v));
  for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
    const std::int32_t e = problem_.entry_edge[entry];
    if (problem_.is_active(e)) {  // its gradient there did not count
      const double* segment = problem_.gradient_of(e);
      for (int s = 0; problem_.vertices_of(e)[s] != v; ++s)
        segment += problem_.dim(problem_.vertices_of(e)[s]);
      for (int i = 0; i < problem_.dim(v); ++i) problem_.add_pending(v, i, segment[i]);
    }
    settle(e);
    touch_edge(e);
  }
}

void Session::set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t v = vertex(ids[k]);
    if ((problem_.state[v] == VertexState::kFixed) == fixed) continue;
    if (fixed) {
      take_all_steps();
      fix(v);
    } else {
      release(v);
    }
  }
}

void Session::set_estimate(std::int64_t id, const double* estimate) {
  check_open();
  const std::int32_t v = vertex(id);
  take_all_steps();
  VertexKind& kind = *problem_.kinds[static_cast<std::size_t>(problem_.kind[v])];
  kind.estimate.write(static_cast<std::int64_t>(problem_.row[v]) * kind.storage_dim, estimate,
                      kind.storage_dim);
  for (const std::int32_t e : edges_of({v})) {
    new_edges_.push_back(e);
    touch_edge(e);
  }
}

void Session::remove_vertices(const std::int64_t* ids, std::int64_t count) {
  check_open();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int32_t v = vertex(ids[k]);
    while (problem_.first_of[v] >= 0) take_out(problem_.entry_edge[problem_.first_of[v]]);
    touched_.push_back(v);
    set_fixed(ids + k, 1, true);
    problem_.vertex_of_id.erase(ids[k]);
    leaving_.push_back(v);
  }
}

void Session::marginalize(const std::int64_t* ids, std::int64_t count) {
  check_open();
  if (count == 0) return;
  std::vector<std::int32_t> vertices;
  for (std::int64_t k = 0; k < count; ++k) {
    vertices.push_back(vertex(ids[k]));
    if (std::count(ids, ids + k, ids[k]) > 0)
      throw Refused("Vertex " + std::to_string(ids[k]) + " is to be marginalized twice.");
    if (!problem_.is_free(vertices.back()))
      throw Refused("Vertex " + std::to_string(ids[k]) + " is fixed: remove it instead of marginalizing it.");
  }
  take_all_steps();
  std::vector<std::int32_t> edges = edges_of(vertices);
  edges.insert(edges.end(), new_edges_.begin(), new_edges_.end());
  evaluate_anew(edges);
  std::vector<std::shared_ptr<const Prior>> priors;
  try {
    priors = tree_.marginalize(vertices);
  } catch (const Singular& singular) {
    throw Refused(
        "The vertices to marginalize are not determined by their edges: " +
        std::to_string(problem_.id[singular.vertices.empty() ? vertices[0] : singular.vertices[0]]) +
        " can move.");
  }
  for (const std::int32_t v : vertices)
    while (problem_.first_of[v] >= 0) take_out(problem_.entry_edge[problem_.first_of[v]]);
  new_edges_.erase(std::remove_if(new_edges_.begin(), new_edges_.end(),
                                  [&](std::int32_t e) { return !problem_.is_active(e); }),
                   new_edges_.end());
  remove_vertices(ids, count);
  for (auto& prior : priors) {
    const std::int32_t e = problem_.add_prior(std::move(prior), next_handle_[0]);
    next_handle_.set(0, next_handle_[0] + 1);
    insert_edge(e);
  }
}

// ---------------------------------------------------------------------- neighbours

// Active edges of the vertices, each once; many of all in the order in which they lie in memory.
std::vector<std::int32_t> Session::edges_of(const std::vector<std::int32_t>& vertices) {
  std::vector<std::int32_t> edges;
  stamp_.resize(std::max<std::size_t>(stamp_.size(), static_cast<std::size_t>(std::max<std::int64_t>(
                                                         problem_.edge_kind.size(), problem_.num_places()))),
                0);
  ++stamp_now_;
  for (const std::int32_t v : vertices)
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
      const std::int32_t e = problem_.entry_edge[entry];
      if (!problem_.is_active(e) || stamp_[static_cast<std::size_t>(e)] == stamp_now_) continue;
      stamp_[static_cast<std::size_t>(e)] = stamp_now_;
      edges.push_back(e);
    }
  if (kManyOf * static_cast<std::int64_t>(edges.size()) > problem_.edge_kind.size()) {
    edges.clear();
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(problem_.edge_kind.size()); ++e)
      if (stamp_[static_cast<std::size_t>(e)] == stamp_now_) edges.push_back(e);
  }
  return edges;
}

// Free vertices of the edges, each once.
std::vector<std::int32_t> Session::ends_of(const std::vector<std::int32_t>& edges) {
  std::vector<std::int32_t> vertices;
  stamp_.resize(std::max<std::size_t>(stamp_.size(), static_cast<std::size_t>(std::max<std::int64_t>(
                                                         problem_.edge_kind.size(), problem_.num_places()))),
                0);
  ++stamp_now_;
  for (const std::int32_t e : edges)
    for (int s = 0; s < problem_.arity(e); ++s) {
      const std::int32_t v = problem_.vertices_of(e)[s];
      if (!problem_.is_free(v) || stamp_[static_cast<std::size_t>(v)] == stamp_now_) continue;
      stamp_[static_cast<std::size_t>(v)] = stamp_now_;
      vertices.push_back(v);
    }
  return vertices;
}

void Session::evaluate_anew(const std::vector<std::int32_t>& edges) {
  std::vector<std::int32_t> active;
  for (const std::int32_t e : edges)
    if (problem_.is_active(e)) active.push_back(e);
  Problem::Evaluation how;
  how.take_H = how.must_be_finite = true;
  problem_.evaluate(active, how);
}

// ---------------------------------------------------------------------- versions

std::int64_t Session::snapshot() {
  if (is_open_) throw std::logic_error("Online: an update is being made");
  journal_.set_records(true);
  snapshots_[next_snapshot_] = journal_.mark();
  return next_snapshot_++;
}

void Session::restore(std::int64_t number) {
  const auto found = snapshots_.find(number);
  if (found == snapshots_.end())
    throw Refused("This snapshot is gone: an older one was restored, or it was taken of another object.");
  if (is_open_) throw std::logic_error("Online: an update is being made");
  problem_.forget_determined();
  journal_.undo_to(found->second);
  snapshots_.erase(std::next(found), snapshots_.end());
}

void Session::forget(std::int64_t number) {
  snapshots_.erase(number);
  if (!is_open_) stop_recording();
}

void Session::stop_recording() {
  if (!snapshots_.empty()) return;
  journal_.forget();
  journal_.set_records(false);
}

}  // namespace graphopt::online
