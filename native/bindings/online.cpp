// Bindings of problems that are kept solved while they change.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <mutex>

#include "exact_arrays.h"
#include "online/rows.h"
#include "online/session.h"

namespace py = pybind11;
using namespace graphopt::online;
using graphopt::bindings::as_array;
using graphopt::bindings::exact;
using graphopt::bindings::ExactArray;
using graphopt::bindings::require;
using graphopt::vm::ProgramPtr;

namespace {

using Ids = py::array_t<std::int64_t, py::array::c_style>;

// A session and the lock that its calls take turns by; the interpreter's is released meanwhile.
struct BoundSession {
  Session session;
  std::mutex mutex;

  template <class Task>
  auto run(const Task& task) {
    const py::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex);
    try {
      return task(session);
    } catch (...) {
      session.tree().forget_marks();
      throw;
    }
  }
};

py::dict as_dict(const Report& r) {
  py::dict d;
  d["chi2"] = r.chi2;
  d["remaining"] = r.remaining;
  d["converged"] = r.converged;
  d["iterations"] = r.iterations;
  d["moved"] = r.moved;
  d["evaluated"] = r.evaluated;
  d["eliminated_vertices"] = r.eliminated_vertices;
  d["eliminated_cliques"] = r.eliminated_cliques;
  d["refreshed_cliques"] = r.refreshed_cliques;
  d["visited_cliques"] = r.visited_cliques;
  d["vertices"] = r.vertices;
  d["free_vertices"] = r.free_vertices;
  d["edges"] = r.edges;
  d["seconds"] = r.seconds;
  d["outliers"] = as_array(std::vector<std::int64_t>(r.rejected));
  d["restored"] = as_array(std::vector<std::int64_t>(r.accepted));
  d["eliminate_seconds"] = r.eliminate_seconds;
  d["solve_seconds"] = r.solve_seconds;
  d["evaluate_seconds"] = r.evaluate_seconds;
  return d;
}

// Arrays of an update, which live as long as this.
struct VertexArrays {
  py::array_t<std::int64_t, py::array::c_style> ids;
  py::array_t<double, py::array::c_style> estimates;
  py::array_t<bool, py::array::c_style> fixed;
};

VertexArrays vertex_arrays(BoundSession& self, int kind, const py::handle& ids, const py::handle& estimates,
                           const py::handle& fixed) {
  VertexArrays arrays{exact<std::int64_t>(ids, "ids", 1), exact<double>(estimates, "estimates", 2),
                      exact<bool>(fixed, "fixed", 1)};
  const auto& kinds = self.session.problem().kinds;
  require(kind >= 0 && kind < static_cast<int>(kinds.size()), "there is no such kind of vertex");
  require(arrays.estimates.shape(0) == arrays.ids.shape(0) && arrays.fixed.shape(0) == arrays.ids.shape(0) &&
              arrays.estimates.shape(1) == kinds[static_cast<std::size_t>(kind)]->storage_dim,
          "the arrays of vertices do not fit together");
  return arrays;
}

void add_vertices(BoundSession& self, int kind, const py::object& ids, const py::object& estimates,
                  const py::object& fixed) {
  const VertexArrays own = vertex_arrays(self, kind, ids, estimates, fixed);
  self.run([&](Session& s) {
    s.add_vertices(kind, own.ids.data(), own.estimates.data(), own.fixed.data(), own.ids.shape(0));
  });
}

struct EdgeArrays {
  py::array_t<std::int64_t, py::array::c_style> vertices;
  py::array_t<std::int32_t, py::array::c_style> parameters;
  py::array_t<double, py::array::c_style> data;
};

EdgeArrays edge_arrays(const BoundSession& self, int kind, const py::handle& vertices,
                       const py::handle& parameters, const py::handle& data) {
  EdgeArrays arrays{exact<std::int64_t>(vertices, "vertices", 2),
                    exact<std::int32_t>(parameters, "parameters", 2), exact<double>(data, "data", 2)};
  const auto& kinds = const_cast<BoundSession&>(self).session.problem().edge_kinds;
  require(kind >= 0 && kind < static_cast<int>(kinds.size()), "there is no such kind of edge");
  const EdgeKind& own = *kinds[static_cast<std::size_t>(kind)];
  const py::ssize_t count = arrays.vertices.shape(0);
  require(arrays.vertices.shape(1) == own.arity() && arrays.parameters.shape(0) == count &&
              arrays.parameters.shape(1) == static_cast<py::ssize_t>(own.parameter_sets.size()) &&
              arrays.data.shape(0) == count && arrays.data.shape(1) == own.data_dim,
          "the arrays of edges do not fit together");
  return arrays;
}

// Changes of an update and the arrays that they point to.
struct BoundUpdate {
  Update changes;
  std::vector<VertexArrays> vertices;
  std::vector<EdgeArrays> edges;
  std::vector<py::array_t<double, py::array::c_style>> bounds;
  std::vector<Ids> ids;

  void take_vertices(BoundSession& self, const py::tuple& row) {
    require(row.size() == 4, "vertices to add are (kind, ids, estimates, fixed)");
    const int kind = row[0].cast<int>();
    vertices.push_back(vertex_arrays(self, kind, row[1], row[2], row[3]));
    const VertexArrays& own = vertices.back();
    changes.vertices.push_back(
        {kind, {own.ids.data(), own.ids.shape(0)}, own.estimates.data(), own.fixed.data()});
  }

  // (kind, vertices, parameters, data, bounds or None)
  Update::Edges edges_of(BoundSession& self, const py::tuple& row) {
    require(row.size() == 5, "edges are (kind, vertices, parameters, data, bounds)");
    const int kind = row[0].cast<int>();
    edges.push_back(edge_arrays(self, kind, row[1], row[2], row[3]));
    const EdgeArrays& own = edges.back();
    const double* limits = nullptr;
    if (!row[4].is_none()) {
      bounds.push_back(exact<double>(row[4], "bounds", 1));
      require(bounds.back().size() == own.vertices.shape(0), "one bound per edge is expected");
      limits = bounds.back().data();
    }
    return {kind, own.vertices.data(), own.parameters.data(), own.data.data(), own.vertices.shape(0), limits};
  }

  void take_ids(const std::string& name, const py::handle& values) {
    const std::pair<const char*, Span<std::int64_t>*> known[] = {
        {"free", &changes.free},
        {"remove", &changes.remove},
        {"switch_off", &changes.switch_off},
        {"switch_on", &changes.switch_on},
        {"trust", &changes.trust},
        {"fix", &changes.fix},
        {"remove_vertices", &changes.remove_vertices},
        {"marginalize", &changes.marginalize},
    };
    ids.push_back(exact<std::int64_t>(values, name, 1));
    for (const auto& [key, span] : known) {
      if (name != key) continue;
      *span = {ids.back().data(), ids.back().size()};
      return;
    }
    throw py::value_error("there is no change called " + name);
  }
};

// (numbers of the report, first handles); see session.py.
py::tuple update(BoundSession& self, const py::list& vertices, const py::list& edges, const py::dict& changes,
                 const py::list& replace) {
  BoundUpdate own;
  for (const py::handle row : vertices) own.take_vertices(self, row.cast<py::tuple>());
  for (const py::handle row : edges) own.changes.edges.push_back(own.edges_of(self, row.cast<py::tuple>()));
  for (const auto& [name, values] : changes) own.take_ids(name.cast<std::string>(), values);
  for (const py::handle row : replace) {
    const auto pair = row.cast<py::tuple>();
    own.changes.replace.push_back(
        {pair[0].cast<std::int64_t>(), own.edges_of(self, pair[1].cast<py::tuple>())});
  }
  std::vector<std::int64_t> first_handles;
  const Report report = self.run([&](Session& s) { return s.update(own.changes, first_handles); });
  return py::make_tuple(as_dict(report), first_handles);
}

// (plain, variant, rows): see online/rows.h.
py::tuple pack_edges(const py::array_t<double, py::array::c_style>& measurements,
                     const py::object& information, std::int64_t count, const std::vector<int>& quaternions) {
  EdgeNumbers own;
  own.count = count;
  own.shares_measurement = measurements.ndim() == 1;
  own.measurements = measurements.data();
  own.measurement_dim = measurements.shape(measurements.ndim() - 1);
  ExactArray<double> matrices;
  if (!information.is_none()) {
    const bool is_one = information.attr("ndim").cast<int>() == 2;
    matrices = exact<double>(information, "information", is_one ? 2 : 3);
    own.shares_information = is_one;
    own.information = matrices.data();
    own.dim = matrices.shape(matrices.ndim() - 1);
    require(matrices.shape(matrices.ndim() - 2) == own.dim && (is_one || matrices.shape(0) == count),
            "information matrices do not fit");
  }
  require(own.shares_measurement || measurements.shape(0) == count, "measurements do not fit");
  bool plain = is_plain(own);
  for (const int first : quaternions) {
    require(first >= 0 && first + 4 <= own.measurement_dim, "there is no such quaternion");
    plain = plain &&
            are_nearly_unit(own.measurements, own.shares_measurement ? 1 : count, own.measurement_dim, first);
  }
  const bool diagonal = is_diagonal(own);
  ExactArray<double> rows(
      {static_cast<py::ssize_t>(count), static_cast<py::ssize_t>(row_size(own, diagonal))});
  pack(own, diagonal, rows.mutable_data());
  return py::make_tuple(plain,
                        own.information == nullptr ? "identity"
                        : diagonal                 ? "diagonal"
                                                   : "full",
                        rows);
}

std::vector<std::int32_t> vertices_of(const Session& s, const Ids& ids) {
  std::vector<std::int32_t> vertices;
  for (py::ssize_t k = 0; k < ids.size(); ++k) vertices.push_back(s.vertex(ids.data()[k]));
  return vertices;
}

py::array estimates(BoundSession& self, int kind, const Ids& ids) {
  std::vector<double> values;
  int storage = 0;
  self.run([&](Session& s) {
    storage = s.problem().kinds[static_cast<std::size_t>(kind)]->storage_dim;
    const std::vector<std::int32_t> vertices = vertices_of(s, ids);
    const double* const steps = s.steps_of(vertices);
    for (const std::int32_t v : vertices) {
      if (s.problem().kind[v] != kind)
        throw Refused("Vertex " + std::to_string(s.problem().id[v]) + " has another type.");
      values.resize(values.size() + static_cast<std::size_t>(storage));
      s.problem().present(v, steps == nullptr ? nullptr : steps + s.problem().offset[v],
                          values.data() + values.size() - storage);
    }
  });
  return as_array(std::move(values)).reshape({ids.size(), static_cast<py::ssize_t>(storage)});
}

// Rows of `of`, columns of `columns`.
py::array covariance(BoundSession& self, const Ids& of, const Ids& columns, bool exactly) {
  std::vector<double> values;
  std::int64_t rows = 0, cols = 0;
  self.run([&](Session& s) {
    if (exactly) s.make_fresh();
    s.tree().require_covariances();
    const auto own = vertices_of(s, of), others = vertices_of(s, columns);
    for (const auto* list : {&own, &others})
      for (const std::int32_t v : *list)
        if (!s.problem().is_free(v))
          throw Refused("Vertex " + std::to_string(s.problem().id[v]) + " is fixed: it has no covariance.");
    for (const std::int32_t v : own) rows += s.problem().dim(v);
    for (const std::int32_t v : others) cols += s.problem().dim(v);
    values.resize(static_cast<std::size_t>(rows * cols));
    s.tree().covariance(own, others, values.data());
  });
  return as_array(std::move(values)).reshape({cols, rows}).attr("T");
}

py::tuple all_covariances(BoundSession& self, int kind, bool exactly) {
  std::vector<std::int64_t> ids;
  std::vector<double> values;
  int dim = 0;
  self.run([&](Session& s) {
    if (exactly) s.make_fresh();
    s.tree().require_covariances();
    const Problem& p = s.problem();
    dim = p.kinds[static_cast<std::size_t>(kind)]->tangent_dim;
    std::vector<std::int64_t> first(static_cast<std::size_t>(p.num_places()), -1);
    for (std::int32_t v = 0; v < p.num_places(); ++v)
      if (p.is_free(v) && p.kind[v] == kind) {
        first[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(ids.size()) * dim * dim;
        ids.push_back(p.id[v]);
      }
    values.resize(ids.size() * static_cast<std::size_t>(dim * dim));
    s.tree().all_marginals(first, values.data());
  });
  const auto count = static_cast<py::ssize_t>(ids.size());
  return py::make_tuple(as_array(std::move(ids)),
                        as_array(std::move(values))
                            .reshape({count, static_cast<py::ssize_t>(dim), static_cast<py::ssize_t>(dim)}));
}

py::list vertex_state(BoundSession& self) {
  py::list found;
  const Problem& p = self.session.problem();
  const double* const steps = self.session.all_steps();
  for (std::size_t k = 0; k < p.kinds.size(); ++k) {
    std::vector<std::int64_t> ids;
    std::vector<double> values;
    std::vector<std::uint8_t> fixed;
    const int storage = p.kinds[k]->storage_dim;
    for (std::int32_t v = 0; v < p.num_places(); ++v) {
      if (p.state[v] == VertexState::kUnused || p.kind[v] != static_cast<std::int16_t>(k)) continue;
      ids.push_back(p.id[v]);
      values.resize(values.size() + static_cast<std::size_t>(storage));
      p.present(v, steps == nullptr || !p.is_free(v) ? nullptr : steps + p.offset[v],
                values.data() + values.size() - storage);
      fixed.push_back(p.state[v] == VertexState::kFixed);
    }
    const auto count = static_cast<py::ssize_t>(ids.size());
    found.append(
        py::make_tuple(as_array(std::move(ids)),
                       as_array(std::move(values)).reshape({count, static_cast<py::ssize_t>(storage)}),
                       as_array(std::move(fixed))));
  }
  return found;
}

py::list edge_state(BoundSession& self) {
  py::list found;
  const Problem& p = self.session.problem();
  const double* const steps = self.session.all_steps();
  for (std::size_t k = 0; k < p.edge_kinds.size(); ++k) {
    const EdgeKind& own = *p.edge_kinds[k];
    std::vector<std::int64_t> handles, vertices;
    std::vector<std::int32_t> parameters;
    std::vector<double> data, chi2, bounds;
    std::vector<std::uint8_t> off, outliers;
    const auto num_parameters = static_cast<std::int64_t>(own.parameter_sets.size());
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(p.edge_kind.size()); ++e) {
      if (!(p.flags[e] & kUsed) || p.edge_kind[e] != static_cast<std::int16_t>(k)) continue;
      handles.push_back(p.handle[e]);
      for (int s = 0; s < own.arity(); ++s) vertices.push_back(p.id[p.vertices_of(e)[s]]);
      const std::int64_t r = p.edge_row[e];
      parameters.insert(parameters.end(), own.parameter_rows.data() + r * num_parameters,
                        own.parameter_rows.data() + (r + 1) * num_parameters);
      data.insert(data.end(), own.data.data() + r * own.data_dim, own.data.data() + (r + 1) * own.data_dim);
      off.push_back((p.flags[e] & kOff) != 0);
      outliers.push_back((p.flags[e] & kOutlier) != 0);
      bounds.push_back(p.bound[e]);
      chi2.push_back(p.is_active(e) ? p.model_chi2(e, steps) : 0.0);
    }
    const auto count = static_cast<py::ssize_t>(handles.size());
    found.append(py::make_tuple(
        as_array(std::move(handles)),
        as_array(std::move(vertices)).reshape({count, static_cast<py::ssize_t>(own.arity())}),
        as_array(std::move(parameters)).reshape({count, static_cast<py::ssize_t>(num_parameters)}),
        as_array(std::move(data)).reshape({count, static_cast<py::ssize_t>(own.data_dim)}),
        as_array(std::move(off)), as_array(std::move(chi2)), as_array(std::move(bounds)),
        as_array(std::move(outliers))));
  }
  return found;
}

// (handle, vertices, origin, H, b, constant) of each prior.
py::list prior_state(BoundSession& self) {
  py::list found;
  const Problem& p = self.session.problem();
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(p.edge_kind.size()); ++e) {
    if (!(p.flags[e] & kUsed) || p.edge_kind[e] >= 0) continue;
    const Prior& prior = *p.priors[p.edge_row[e]];
    std::vector<std::int64_t> ids;
    for (const std::int32_t v : prior.vertices) ids.push_back(p.id[v]);
    const auto m = static_cast<py::ssize_t>(prior.b.size());
    auto origin = prior.origin, H = prior.H, b = prior.b;
    found.append(py::make_tuple(p.handle[e], ids, as_array(std::move(origin)),
                                as_array(std::move(H)).reshape({m, m}), as_array(std::move(b)),
                                prior.constant, (p.flags[e] & kOff) != 0));
  }
  return found;
}

}  // namespace

void bind_online(py::module_& m) {
  py::register_exception<Refused>(m, "OnlineRefused", PyExc_ValueError);
  m.def(
      "pack_edges", &pack_edges, py::arg("measurements"), py::arg("information"), py::arg("count"),
      py::arg("quaternions"),
      "(plain, variant, rows) of edges: rows hold measurement and information as programs read them. plain: "
      "all is finite, matrices are symmetric to the bit and quaternions of unit length within 1e-3.");
  m.def(
      "all_nearly_unit",
      [](const py::array_t<double, py::array::c_style>& rows, std::int64_t first) {
        const auto dim = static_cast<std::int64_t>(rows.ndim() > 0 ? rows.shape(rows.ndim() - 1) : 0);
        require(first >= 0 && first + 4 <= dim, "there is no such quaternion");
        return are_nearly_unit(rows.data(), rows.size() / dim, dim, first);
      },
      py::arg("rows"), py::arg("first"),
      "Whether quaternions at columns first to first + 3 of rows (n, dim) or (dim,) have length 1 within "
      "1e-3.");
  py::class_<BoundSession>(m, "OnlineSession",
                           "A least-squares problem that is kept solved while it changes.")
      .def(py::init<>())
      .def(
          "add_vertex_kind",
          [](BoundSession& self, ProgramPtr oplus, int storage_dim, bool is_point) {
            return self.session.problem().add_vertex_kind(std::move(oplus), storage_dim, is_point);
          },
          py::arg("oplus"), py::arg("storage_dim"), py::arg("is_point"))
      .def(
          "add_parameter_set",
          [](BoundSession& self, int columns) { return self.session.problem().add_parameter_set(columns); },
          py::arg("columns"))
      .def(
          "set_parameters",
          [](BoundSession& self, int set,
             const py::array_t<double, py::array::c_style | py::array::forcecast>& values) {
            self.session.problem().set_parameters(
                set, std::vector<double>(values.data(), values.data() + values.size()));
          },
          py::arg("set"), py::arg("values"))
      .def(
          "add_edge_kind",
          [](BoundSession& self, ProgramPtr linearize, ProgramPtr kernel, std::vector<int> vertex_kinds,
             std::vector<int> parameter_sets, int data_dim, int residual_dim) {
            return self.session.problem().add_edge_kind(std::move(linearize), std::move(kernel),
                                                        std::move(vertex_kinds), std::move(parameter_sets),
                                                        data_dim, residual_dim);
          },
          py::arg("linearize"), py::arg("kernel"), py::arg("vertex_kinds"), py::arg("parameter_sets"),
          py::arg("data_dim"), py::arg("residual_dim"))
      .def(
          "set",
          [](BoundSession& self, double tolerance, double absolute, double cut, int max_iterations,
             int full_check, double budget) {
            Settings& s = self.session.settings;
            s.tolerance = tolerance, s.absolute = absolute, s.cut = cut, s.max_iterations = max_iterations,
            s.full_check = full_check, s.budget = budget;
          },
          py::arg("tolerance"), py::arg("absolute"), py::arg("cut"), py::arg("max_iterations"),
          py::arg("full_check"), py::arg("budget"))
      .def("begin", [](BoundSession& self) { self.session.begin(); })
      .def("abort", [](BoundSession& self) { self.session.abort(); })
      .def("add_vertices", &add_vertices, py::arg("kind"), py::arg("ids"), py::arg("estimates"),
           py::arg("fixed"))
      .def(
          "update", &update, py::arg("vertices"), py::arg("edges"), py::arg("changes"), py::arg("replace"),
          "All changes of an update and its solution, or none of them: (numbers, first handle of each of the "
          "edges). vertices: (kind, ids, estimates, fixed); edges: (kind, vertices, parameters, data, bounds "
          "or "
          "None); changes: ids or handles by name; replace: (handle, edge).")
      .def(
          "set_estimates",
          [](BoundSession& self, int kind, const Ids& ids, const py::object& values) {
            const auto own = exact<double>(values, "values", 2);
            const auto& kinds = self.session.problem().kinds;
            require(kind >= 0 && kind < static_cast<int>(kinds.size()) && own.shape(0) == ids.size() &&
                        own.shape(1) == kinds[static_cast<std::size_t>(kind)]->storage_dim,
                    "the estimates do not fit their vertices");
            self.run([&](Session& s) {
              for (py::ssize_t k = 0; k < ids.size(); ++k)
                s.set_estimate(ids.data()[k], own.data() + k * own.shape(1));
            });
          },
          py::arg("kind"), py::arg("ids"), py::arg("values"))
      .def(
          "put_edges",
          [](BoundSession& self, const Ids& handles, int kind, const py::object& vertices,
             const py::object& parameters, const py::object& data) {
            const EdgeArrays a = edge_arrays(self, kind, vertices, parameters, data);
            require(handles.size() == a.vertices.shape(0), "one handle per edge is expected");
            self.run([&](Session& s) {
              for (py::ssize_t k = 0; k < handles.size(); ++k)
                s.put_edge(handles.data()[k], kind, a.vertices.data() + k * a.vertices.shape(1),
                           a.parameters.data() + k * a.parameters.shape(1),
                           a.data.data() + k * a.data.shape(1));
            });
          },
          py::arg("handles"), py::arg("kind"), py::arg("vertices"), py::arg("parameters"), py::arg("data"))
      .def(
          "put_prior",
          [](BoundSession& self, std::int64_t handle, const std::vector<std::int64_t>& ids,
             std::vector<double> origin, const py::array_t<double, py::array::c_style>& H,
             std::vector<double> b, double constant) {
            Prior prior;
            prior.origin = std::move(origin);
            prior.H.assign(H.data(), H.data() + H.size());
            prior.b = std::move(b);
            prior.constant = constant;
            require(prior.H.size() == prior.b.size() * prior.b.size(), "H of a prior has the wrong size");
            self.run([&](Session& s) { s.put_prior(handle, std::move(prior), ids); });
          },
          py::arg("handle"), py::arg("ids"), py::arg("origin"), py::arg("H"), py::arg("b"),
          py::arg("constant"))
      .def_property(
          "next_handle", [](BoundSession& self) { return self.session.next_handle(); },
          [](BoundSession& self, std::int64_t handle) { self.session.set_next_handle(handle); })
      .def(
          "decide",
          [](BoundSession& self, const Ids& handles, const py::array_t<double, py::array::c_style>& bounds,
             const py::array_t<bool, py::array::c_style>& outliers) {
            require(bounds.size() == handles.size() && outliers.size() == handles.size(),
                    "one bound and one decision per edge are expected");
            self.run([&](Session& s) {
              s.decide(handles.data(), bounds.data(), outliers.data(), handles.size());
            });
          },
          py::arg("handles"), py::arg("bounds"), py::arg("outliers"))
      .def(
          "outliers",
          [](BoundSession& self) {
            auto found = self.run([](Session& s) { return s.outliers(); });
            return py::make_tuple(as_array(std::move(found.first)), as_array(std::move(found.second)));
          },
          "(handles, chi2 over its bound) of edges that are taken for outliers.")
      .def(
          "switch_edges",
          [](BoundSession& self, const Ids& handles, bool off) {
            self.run([&](Session& s) { s.switch_edges(handles.data(), handles.size(), off); });
          },
          py::arg("handles"), py::arg("off"))
      .def(
          "commit",
          [](BoundSession& self, bool is_batch) {
            return as_dict(self.run([&](Session& s) { return s.commit(is_batch); }));
          },
          py::arg("is_batch"))
      .def("snapshot", [](BoundSession& self) { return self.run([](Session& s) { return s.snapshot(); }); })
      .def(
          "restore",
          [](BoundSession& self, std::int64_t number) { self.run([&](Session& s) { s.restore(number); }); },
          py::arg("snapshot"))
      .def(
          "forget",
          [](BoundSession& self, std::int64_t number) { self.run([&](Session& s) { s.forget(number); }); },
          py::arg("snapshot"))
      .def("estimates", &estimates, py::arg("kind"), py::arg("ids"))
      .def("covariance", &covariance, py::arg("rows"), py::arg("columns"), py::arg("exactly"))
      .def("all_covariances", &all_covariances, py::arg("kind"), py::arg("exactly"))
      .def("vertices", &vertex_state, "(ids, estimates, fixed) of each kind.")
      .def("edges", &edge_state,
           "(handles, vertices, parameters, data, off, chi2, bounds, outliers) of each kind.")
      .def("priors", &prior_state)
      .def(
          "edge",
          [](BoundSession& self, std::int64_t handle) {
            const Problem& p = self.session.problem();
            const std::int32_t e = self.session.edge(handle);
            const bool is_prior = p.edge_kind[e] < 0;
            std::vector<std::int64_t> ids;
            for (int s = 0; s < p.arity(e); ++s) ids.push_back(p.id[p.vertices_of(e)[s]]);
            std::vector<std::int32_t> parameters;
            std::vector<double> data;
            if (!is_prior) {
              const EdgeKind& own = p.kind_of(e);
              const std::int64_t r = p.edge_row[e];
              const auto n = static_cast<std::int64_t>(own.parameter_sets.size());
              parameters.assign(own.parameter_rows.data() + r * n, own.parameter_rows.data() + (r + 1) * n);
              data.assign(own.data.data() + r * own.data_dim, own.data.data() + (r + 1) * own.data_dim);
            }
            return py::make_tuple(static_cast<int>(p.edge_kind[e]), as_array(std::move(ids)),
                                  as_array(std::move(parameters)), as_array(std::move(data)));
          },
          py::arg("handle"), "(kind, vertices, parameter rows, data); kind -1: a prior.")
      .def(
          "kind_of",
          [](BoundSession& self, std::int64_t id) {
            return static_cast<int>(self.session.problem().kind[self.session.vertex(id)]);
          },
          py::arg("id"))
      .def(
          "has_vertex",
          [](BoundSession& self, std::int64_t id) {
            return self.session.problem().vertex_of_id.find(id) >= 0;
          },
          py::arg("id"))
      .def_property_readonly(
          "chi2",
          [](BoundSession& self) {
            return self.run([](Session& s) { return s.problem().exact_chi2(s.all_steps()); });
          })
      .def_property_readonly(
          "num_vertices",
          [](BoundSession& self) { return self.session.problem().counts[Problem::kVertices]; })
      .def_property_readonly(
          "num_edges", [](BoundSession& self) { return self.session.problem().counts[Problem::kEdges]; })
      .def_property_readonly("memory_bytes", [](BoundSession& self) {
        return self.session.tree().bytes() + self.session.journal_bytes();
      });
}
