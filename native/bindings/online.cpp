// Bindings of problems that are kept solved while they change.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <mutex>

#include "exact_arrays.h"
#include "online/session.h"

namespace py = pybind11;
using namespace graphopt::online;
using graphopt::bindings::as_array;
using graphopt::bindings::exact;
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
    return task(session);
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

void add_vertices(BoundSession& self, int kind, const py::object& ids, const py::object& estimates,
                  const py::object& fixed) {
  const auto own_ids = exact<std::int64_t>(ids, "ids", 1);
  const auto own = exact<double>(estimates, "estimates", 2);
  const auto flags = exact<bool>(fixed, "fixed", 1);
  const auto& kinds = self.session.problem().kinds;
  require(kind >= 0 && kind < static_cast<int>(kinds.size()), "there is no such kind of vertex");
  require(own.shape(0) == own_ids.shape(0) && flags.shape(0) == own_ids.shape(0) &&
              own.shape(1) == kinds[static_cast<std::size_t>(kind)]->storage_dim,
          "the arrays of vertices do not fit together");
  self.run(
      [&](Session& s) { s.add_vertices(kind, own_ids.data(), own.data(), flags.data(), own_ids.shape(0)); });
}

struct EdgeArrays {
  py::array_t<std::int64_t, py::array::c_style> vertices;
  py::array_t<std::int32_t, py::array::c_style> parameters;
  py::array_t<double, py::array::c_style> data;
};

EdgeArrays edge_arrays(const BoundSession& self, int kind, const py::object& vertices,
                       const py::object& parameters, const py::object& data) {
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
    const auto own = vertices_of(s, of), others = vertices_of(s, columns);
    for (const auto* list : {&own, &others})
      for (const std::int32_t v : *list)
        if (!s.problem().is_free(v))
          throw Refused("Vertex " + std::to_string(s.problem().id[v]) + " is fixed: it has no covariance.");
    for (const std::int32_t v : own) rows += s.problem().dim(v);
    for (const std::int32_t v : others) cols += s.problem().dim(v);
    values.resize(static_cast<std::size_t>(rows * cols));
    double* out = values.data();
    for (const std::int32_t v : others) {
      s.tree().inverse_columns(v, own, out);
      out += rows * s.problem().dim(v);
    }
  });
  return as_array(std::move(values)).reshape({cols, rows}).attr("T");
}

py::tuple all_covariances(BoundSession& self, int kind, bool exactly) {
  std::vector<std::int64_t> ids;
  std::vector<double> values;
  int dim = 0;
  self.run([&](Session& s) {
    if (exactly) s.make_fresh();
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
  py::class_<BoundSession>(m, "OnlineSession",
                           "A least-squares problem that is kept solved while it changes.")
      .def(py::init<>())
      .def(
          "add_vertex_kind",
          [](BoundSession& self, ProgramPtr oplus, int storage_dim) {
            return self.session.problem().add_vertex_kind(std::move(oplus), storage_dim);
          },
          py::arg("oplus"), py::arg("storage_dim"))
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
          "add_edges",
          [](BoundSession& self, int kind, const py::object& vertices, const py::object& parameters,
             const py::object& data, const py::object& bounds) {
            const EdgeArrays a = edge_arrays(self, kind, vertices, parameters, data);
            py::array_t<double, py::array::c_style> own(0);
            if (!bounds.is_none()) own = exact<double>(bounds, "bounds", 1);
            require(bounds.is_none() || own.size() == a.vertices.shape(0), "one bound per edge is expected");
            return self.run([&](Session& s) {
              return s.add_edges(kind, a.vertices.data(), a.parameters.data(), a.data.data(),
                                 a.vertices.shape(0), own.size() > 0 ? own.data() : nullptr);
            });
          },
          py::arg("kind"), py::arg("vertices"), py::arg("parameters"), py::arg("data"), py::arg("bounds"),
          "Returns the first handle.")
      .def(
          "replace_edge",
          [](BoundSession& self, std::int64_t handle, int kind, const py::object& vertices,
             const py::object& parameters, const py::object& data) {
            const EdgeArrays a = edge_arrays(self, kind, vertices, parameters, data);
            self.run([&](Session& s) {
              s.replace_edge(handle, kind, a.vertices.data(), a.parameters.data(), a.data.data());
            });
          },
          py::arg("handle"), py::arg("kind"), py::arg("vertices"), py::arg("parameters"), py::arg("data"))
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
          "remove_edges",
          [](BoundSession& self, const Ids& handles) {
            self.run([&](Session& s) { s.remove_edges(handles.data(), handles.size()); });
          },
          py::arg("handles"))
      .def(
          "switch_edges",
          [](BoundSession& self, const Ids& handles, bool off) {
            self.run([&](Session& s) { s.switch_edges(handles.data(), handles.size(), off); });
          },
          py::arg("handles"), py::arg("off"))
      .def(
          "set_fixed",
          [](BoundSession& self, const Ids& ids, bool fixed) {
            self.run([&](Session& s) { s.set_fixed(ids.data(), ids.size(), fixed); });
          },
          py::arg("ids"), py::arg("fixed"))
      .def(
          "remove_vertices",
          [](BoundSession& self, const Ids& ids) {
            self.run([&](Session& s) { s.remove_vertices(ids.data(), ids.size()); });
          },
          py::arg("ids"))
      .def(
          "marginalize",
          [](BoundSession& self, const Ids& ids) {
            self.run([&](Session& s) { s.marginalize(ids.data(), ids.size()); });
          },
          py::arg("ids"))
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
      .def_property_readonly("factor_nonzeros",
                             [](BoundSession& self) { return self.session.tree().nonzeros(); })
      .def_property_readonly("num_cliques",
                             [](BoundSession& self) { return self.session.tree().num_cliques(); })
      .def_property_readonly("memory_bytes", [](BoundSession& self) {
        return self.session.tree().bytes() + self.session.journal_bytes();
      });
}
