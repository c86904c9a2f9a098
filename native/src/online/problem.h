// Vertices and edges of a graph that grows and shrinks, and their evaluation.
//
// Places (of a vertex, an edge, a row of numbers) are used again once they are free, so that a window that
// moves keeps its memory. Whatever is written goes through a journal (journal.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "online/journal.h"
#include "vm/lanes.h"
#include "vm/linearizer.h"
#include "vm/program.h"

namespace graphopt::online {

// An update that cannot be done; the caller takes everything back.
struct Refused : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Freed places of one kind, the last one first.
class Places {
 public:
  explicit Places(Journal& journal) : free_(journal), end_(journal) {}
  // `size` consecutive places.
  std::int64_t take(std::int64_t size) {
    if (!free_.empty()) return free_.pop_back();
    const std::int64_t first = end();
    end_.grow(1);
    end_.set(0, first + size);
    return first;
  }
  void give_back(std::int64_t first) { free_.push_back(first); }
  std::int64_t end() const { return end_.empty() ? 0 : end_[0]; }

 private:
  Journaled<std::int64_t> free_;
  Journaled<std::int64_t> end_;  // one number; empty as long as it is 0, also after undoing all
};

enum class VertexState : std::uint8_t { kUnused, kFree, kFixed };

struct VertexKind {
  VertexKind(Journal& journal, vm::ProgramPtr program, int storage, int tangent, bool point)
      : oplus(std::move(program)),
        storage_dim(storage),
        tangent_dim(tangent),
        is_point(point),
        places(journal),
        scalars(journal),
        estimate(journal) {}
  vm::ProgramPtr oplus;
  int storage_dim, tangent_dim;
  bool is_point;               // of a map: all components have one unit
  Places places;               // rows of `estimate`
  Places scalars;              // freed segments of dx of this size
  Journaled<double> estimate;  // (rows, storage_dim)
};

struct EdgeKind {
  explicit EdgeKind(Journal& journal)
      : places(journal), data(journal), models(journal), parameter_rows(journal) {}
  vm::ProgramPtr linearize, kernel;  // kernel may be null
  std::vector<int> vertex_kinds, parameter_sets, dims;
  int residual_dim = 0;
  int data_dim = 0;       // measurement, information, width of a kernel
  int state_dim = 0;      // b: scalars of all vertices
  int num_outputs = 0;    // of `linearize`
  int first_segment = 0;  // output where b begins
  // Of each packed entry of H; entry of each scalar's diagonal.
  std::vector<std::int32_t> entry_row, entry_column, diagonal;
  Places places;
  Journaled<double> data;                  // (rows, data_dim)
  Journaled<double> models;                // (rows, num_outputs): rho, blocks of H, g; see Problem
  Journaled<std::int32_t> parameter_rows;  // (rows, number of parameters)
  std::vector<std::int32_t> data_registers, output_registers;
  int arity() const { return static_cast<int>(vertex_kinds.size()); }
  void number_entries();
};

// What is left of marginalized vertices: chi2 = d' H d - 2 b' d + constant, with x = origin oplus d.
struct Prior {
  std::vector<std::int32_t> vertices;
  std::vector<int> first;      // scalar of each vertex's d, and the end
  std::vector<double> origin;  // estimates one after the other
  std::vector<double> H, b;    // (m, m) column-major, (m)
  double constant = 0.0;
};

// Model of a prior, as the outputs of an edge's program are that of an edge.
struct PriorModel {
  double chi2 = 0.0;
  std::shared_ptr<const std::vector<double>> H;  // (m, m) column-major
  std::vector<double> gradient;                  // (m)
};

enum EdgeFlag : std::uint8_t {
  kUsed = 1,
  kOff = 2,      // switched off
  kStale = 4,    // its H has changed since it went into the factor
  kIdle = 8,     // all its vertices are fixed
  kOutlier = 16  // it may be wrong and was found to be
};

class Problem {
 public:
  explicit Problem(Journal& journal);

  int add_vertex_kind(vm::ProgramPtr oplus, int storage_dim, bool is_point);
  int add_parameter_set(int columns);
  void set_parameters(int set, std::vector<double> values);
  int add_edge_kind(vm::ProgramPtr linearize, vm::ProgramPtr kernel, std::vector<int> vertex_kinds,
                    std::vector<int> parameter_sets, int data_dim, int residual_dim);

  std::int32_t add_vertex(int kind, std::int64_t id, const double* estimate, bool fixed);
  void remove_vertex(std::int32_t vertex);  // that no edge has any more, and no id
  std::int32_t add_edge(int kind, const std::int32_t* vertices, const std::int32_t* parameter_rows,
                        const double* data, std::int64_t handle);
  std::int32_t add_prior(std::shared_ptr<const Prior> prior, std::int64_t handle);
  void remove_edge(std::int32_t edge);

  // ------------------------------------------------------------------ vertices
  std::int32_t num_places() const { return static_cast<std::int32_t>(state.size()); }
  int dim(std::int32_t v) const { return kinds[static_cast<std::size_t>(kind[v])]->tangent_dim; }
  bool is_free(std::int32_t v) const { return state[v] == VertexState::kFree; }
  bool is_point(std::int32_t v) const { return kinds[static_cast<std::size_t>(kind[v])]->is_point; }
  const double* estimate(std::int32_t v) const {
    const VertexKind& k = *kinds[static_cast<std::size_t>(kind[v])];
    return k.estimate.data() + static_cast<std::int64_t>(row[v]) * k.storage_dim;
  }
  // ------------------------------------------------------------------ edges
  bool is_active(std::int32_t e) const { return (flags[e] & (kUsed | kOff | kIdle | kOutlier)) == kUsed; }
  int arity(std::int32_t e) const {
    return edge_kind[e] < 0 ? static_cast<int>(priors[edge_row[e]]->vertices.size())
                            : edge_kinds[static_cast<std::size_t>(edge_kind[e])]->arity();
  }
  const std::int32_t* vertices_of(std::int32_t e) const { return entry_vertex.data() + first_entry[e]; }
  const EdgeKind& kind_of(std::int32_t e) const {
    return *edge_kinds[static_cast<std::size_t>(edge_kind[e])];
  }
  std::string name(std::int32_t e) const;
  [[noreturn]] void refuse_as_not_finite(std::int32_t e) const;

  // ------------------------------------------------------------------ models
  // Each edge has a model at the estimates of its vertices, with d a step from there:
  //   chi2_e(d) = rho - 2 g' d + d' H d
  // rho and g are renewed whenever the edge is evaluated, H is that of the factor.
  const double* H_of(std::int32_t e) const;  // of a prior (m, m), else packed blocks
  const double* gradient_of(std::int32_t e) const;
  int state_dim(std::int32_t e) const;
  double rho_of(std::int32_t e) const;
  // chi2_e(d), d of all vertices by `offset`; null: zero.
  double model_chi2(std::int32_t e, const double* d) const;

  // Outputs of `linearize` for edges of one kind at the estimates, `stride(kind)` numbers each; `moved`: the
  // estimates of each kind of vertex, null for those that are kept.
  void linearize(int kind, const std::int32_t* edges, std::int64_t count, double* out,
                 const std::vector<std::vector<double>>* moved = nullptr) const;
  int stride(int kind) const;
  // H (m, m) column-major and b (m) of a prior at the estimates; returns its chi2.
  double linearize_prior(const Prior& prior, std::vector<double>& H, std::vector<double>& b,
                         const std::vector<std::vector<double>>* moved = nullptr) const;

  void add_pending(std::int32_t v, int i, double change) {
    if (change == 0.0) return;
    pending.set(offset[v] + i, pending[offset[v] + i] + change);
    note(v);
  }
  // All of the vertex' scalars: values - less.
  void add_pending(std::int32_t v, const double* values, const double* less);
  void set_pending(std::int32_t v, const double* values) {
    pending.write(offset[v], values, dim(v));
    note(v);
  }
  void forget_changed();
  // Evaluate edges; the gradient that this adds becomes `pending`. take_H: H is that of the factor to come;
  // otherwise an edge whose H differs by more than `tolerance` becomes stale, but up to `most` only where the
  // difference changes d' H d of `step` (by `offset`) by more than `energy`. Returns by how much chi2 is
  // above that of the models; infinite where a number is not finite, unless `must_be_finite`, which throws
  // Refused.
  struct Evaluation {
    bool take_H = false, must_be_finite = false;
    double tolerance = 0.0, most = 0.0, energy = 0.0;
    const double* step = nullptr;  // null: `tolerance` alone counts
  };
  double evaluate(const std::vector<std::int32_t>& edges, const Evaluation& how);
  // The same for edges that are new, at estimates oplus `steps` (by `offset`): their models at the estimates.
  // Returns by how much chi2 of these models is higher than chi2 there.
  double evaluate_at(const std::vector<std::int32_t>& edges, const double* steps);
  // Outputs of edges (no priors) at estimates oplus `steps` (null: zero).
  std::vector<vm::AlignedVector<double>> outputs_at(const std::vector<std::int32_t>& edges,
                                                    const double* steps);
  // d' H d of an edge's packed blocks as a matrix (m, m) column-major.
  std::vector<double> matrix_of(int kind, const double* blocks) const;
  // Whether a path of edges on two vertices joins it to a fixed one, or to one with an edge of its own, each
  // with information on all components of its end: then H determines it, however small its pivot is.
  bool is_determined(std::int32_t v) const;
  // After edges or fixed vertices have gone.
  void forget_determined() { ++epoch_; }
  void set_bound(std::int32_t e, double value);
  // Take an edge's model out of chi2 and the gradient.
  void drop_share(std::int32_t e);
  // estimates <- estimates oplus scale dx
  void move(const std::vector<std::int32_t>& vertices, const double* dx, double scale);
  // Estimate oplus step (tangent_dim), storage_dim numbers; step null: the estimate.
  void present(std::int32_t v, const double* step, double* out) const;
  // chi2 at the estimates oplus steps (by `offset`; null: zero), evaluated.
  double exact_chi2(const double* steps) const;

  // chi2 of the models at the estimates.
  double chi2() const { return total_[0] + total_[1]; }
  // Sum of all models anew, without the rounding of many updates; the gradient of all free vertices to `g`.
  void sum_again(std::vector<double>& g);

  Journal& journal;
  std::vector<std::unique_ptr<VertexKind>> kinds;
  std::vector<std::unique_ptr<EdgeKind>> edge_kinds;
  struct Parameters {
    int columns;
    std::vector<double> values;
  };
  std::vector<Parameters> parameters;

  JournaledMap vertex_of_id, edge_of_handle;
  Journaled<std::int64_t> id;  // per vertex
  Journaled<VertexState> state;
  Journaled<std::int16_t> kind;
  Journaled<std::int32_t> row;        // of its kind's estimates
  Journaled<std::int64_t> offset;     // first scalar of dx and of the gradient
  Journaled<std::int32_t> first_of;   // entry that begins the list of its edges, -1
  Journaled<double> pending;          // per scalar: part of b that the tree has not got
  std::vector<std::int32_t> changed;  // vertices whose `pending` was added to; each once

  Journaled<std::int16_t> edge_kind;    // per edge; -1: prior
  Journaled<std::int32_t> edge_row;     // of its kind
  Journaled<std::int64_t> first_entry;  // its vertices' entries follow each other
  Journaled<std::uint8_t> flags;
  Journaled<double> bound;  // of chi2 of an edge that may be wrong; 0: it is trusted
  Journaled<std::int64_t> handle;
  Journaled<std::int32_t> entry_vertex, entry_edge, entry_next, entry_previous;
  Journaled<std::shared_ptr<const Prior>> priors;
  Journaled<std::shared_ptr<const PriorModel>> prior_models;
  Journaled<std::int64_t> counts;  // see the enumeration
  enum Count { kVertices, kFreeVertices, kEdges, kScalars, kBounded, kNumCounts };
  void count(Count what, std::int64_t change) { counts.set(what, counts[what] + change); }

 private:
  class Elsewhere;
  void note(std::int32_t v);
  bool holds(std::int32_t e, int slot) const;
  double take_model(std::int32_t e, const double* outputs, const Evaluation& how);
  double take_prior(std::int32_t e, const Evaluation& how);
  bool is_stale(std::int32_t e, const double* H, const double* other, const Evaluation& how) const;
  void link(std::int64_t entry, std::int32_t vertex, std::int32_t edge);
  std::int32_t new_edge(int kind, std::int32_t row, std::int64_t handle, const std::int32_t* vertices,
                        int arity);
  void add_chi2(double change);
  void oplus(int kind, const std::vector<std::int32_t>& vertices, const double* dx, double scale,
             std::vector<double>& out) const;
  void shift_model(std::int32_t e, const double* steps, double* outputs) const;

  Places vertex_places_, edge_places_, prior_places_;
  std::vector<std::unique_ptr<Places>> entry_places_;  // by arity
  Journaled<double> total_;                            // chi2 as a sum of two
  std::vector<char> is_noted_;                         // per vertex
  std::uint64_t epoch_ = 1;
  mutable std::vector<std::uint64_t> determined_;  // per vertex: epoch in which it was
};

}  // namespace graphopt::online
