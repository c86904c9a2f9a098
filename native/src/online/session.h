// A least-squares problem that is kept solved while it changes.
//
//   b = -sum J' W Omega e at the estimates,   H ~ L L' as the tree has it,   dx = (L L')^-1 b
//
// After a change the cliques that it touches are eliminated anew, which gives y = L^-1 b; |y|^2 predicts by
// how much a step lowers chi2. As long as the steps before say that this one would miss little of that, it is
// not taken: the session is ahead of its estimates, and where a vertex is, estimate oplus dx, follows from
// its path to the root when somebody asks. Otherwise all vertices move, their edges are evaluated, an edge
// whose H has changed by more than a share goes into the factor again, and what the step missed is measured.
// A large step after which chi2 has not fallen is taken back and halved.
//
// An update begins with begin() and ends with commit() or abort(), which restores every bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "online/tree.h"

namespace graphopt::online {

struct Settings {
  double tolerance = 1e-4;  // predicted decrease that may be left, relative to chi2
  double absolute = 1e-9;   // the same as a number
  double cut = 0.3;         // of the tolerance: energy of all cliques' steps that may be left out
  int max_iterations = 10;
  int full_check = 50;  // updates after which all of b is looked at
  double budget = 0.0;  // seconds, 0: none
};

struct Report {
  double chi2 = 0.0;
  double remaining = 0.0;  // predicted decrease of chi2 that was left
  std::int64_t iterations = 0, moved = 0, evaluated = 0;
  std::int64_t eliminated_vertices = 0, eliminated_cliques = 0, refreshed_cliques = 0, visited_cliques = 0;
  std::int64_t vertices = 0, edges = 0, free_vertices = 0;
  std::vector<std::int64_t> rejected, accepted;  // handles of edges that may be wrong, by their new decision
  bool converged = false, ordered = false;
  double eliminate_seconds = 0.0, solve_seconds = 0.0, evaluate_seconds = 0.0, seconds = 0.0;
};

template <class T>
struct Span {
  const T* data = nullptr;
  std::int64_t size = 0;
};

// All changes of an update, in the order in which they are made.
struct Update {
  struct Vertices {
    int kind;
    Span<std::int64_t> ids;
    const double* estimates;
    const bool* fixed;
  };
  struct Edges {  // see Session::add_edges
    int kind;
    const std::int64_t* vertices;
    const std::int32_t* parameter_rows;
    const double* data;
    std::int64_t count;
    const double* bounds;
  };
  struct Replacement {
    std::int64_t handle;
    Edges edge;
  };
  std::vector<Vertices> vertices;
  Span<std::int64_t> free;
  std::vector<Edges> edges;
  Span<std::int64_t> remove;
  std::vector<Replacement> replace;
  Span<std::int64_t> switch_off, switch_on, trust, fix, remove_vertices, marginalize;
};

class Session {
 public:
  Session();

  Problem& problem() { return problem_; }
  Settings settings;

  // One update as a whole: Refused leaves every bit as it was. `first_handles`: of each entry of `edges`.
  Report update(const Update& changes, std::vector<std::int64_t>& first_handles);
  void begin();
  void abort();
  // Everything below is part of an update.
  void add_vertices(int kind, const std::int64_t* ids, const double* estimates, const bool* fixed,
                    std::int64_t count);
  // vertices (count, arity) ids; returns the first handle, the others follow. bounds: of chi2 of edges that
  // may be wrong, 0 for those that are trusted; null: all are.
  std::int64_t add_edges(int kind, const std::int64_t* vertices, const std::int32_t* parameter_rows,
                         const double* data, std::int64_t count, const double* bounds = nullptr);
  // The decision on edges that may be wrong, as it was made elsewhere; without a bound they are trusted.
  void decide(const std::int64_t* handles, const double* bounds, const bool* outliers, std::int64_t count);
  void trust(const std::int64_t* handles, std::int64_t count);
  // Edges and priors with handles that they had in another session.
  void put_edge(std::int64_t handle, int kind, const std::int64_t* vertices,
                const std::int32_t* parameter_rows, const double* data);
  void put_prior(std::int64_t handle, Prior prior, const std::vector<std::int64_t>& ids);
  std::int64_t next_handle() const { return next_handle_[0]; }
  void set_next_handle(std::int64_t handle) { next_handle_.set(0, handle); }
  // An edge in the place of another one, with its handle.
  void replace_edge(std::int64_t handle, int kind, const std::int64_t* vertices,
                    const std::int32_t* parameter_rows, const double* data);
  void remove_edges(const std::int64_t* handles, std::int64_t count);
  void switch_edges(const std::int64_t* handles, std::int64_t count, bool off);
  void set_fixed(const std::int64_t* ids, std::int64_t count, bool fixed);
  void set_estimate(std::int64_t id, const double* estimate);
  void remove_vertices(const std::int64_t* ids, std::int64_t count);
  void marginalize(const std::int64_t* ids, std::int64_t count);
  // Eliminate, solve, and keep; throws Refused after which abort() has to follow.
  Report commit(bool is_batch);

  // Constant time; 0 is never a snapshot.
  std::int64_t snapshot();
  void restore(std::int64_t snapshot);
  void forget(std::int64_t snapshot);

  // The factor at the present estimates.
  void make_fresh();
  // Steps from the estimates to where these vertices, or all, are, by `offset`; null: zero.
  const double* steps_of(const std::vector<std::int32_t>& vertices);
  const double* all_steps();
  Tree& tree() { return tree_; }
  std::int32_t vertex(std::int64_t id) const;
  std::int32_t edge(std::int64_t handle) const;
  std::int64_t journal_bytes() const { return journal_.bytes(); }
  bool is_open() const { return is_open_; }
  // Edges that are taken for outliers, and chi2 of each over its bound at the present estimates.
  std::pair<std::vector<std::int64_t>, std::vector<double>> outliers();

 private:
  using Clock = std::chrono::steady_clock;
  void touch_edge(std::int32_t edge);
  void insert_edge(std::int32_t edge);
  void take_out(std::int32_t edge);
  void settle(std::int32_t edge);
  void check_open() const;
  void fix(std::int32_t vertex);
  void release(std::int32_t vertex);
  // Evaluates edges for a factor to come.
  void evaluate_anew(const std::vector<std::int32_t>& edges);
  std::vector<std::int32_t> edges_of(const std::vector<std::int32_t>& vertices);
  std::vector<std::int32_t> ends_of(const std::vector<std::int32_t>& edges);

  void eliminate(Report& report);
  void solve(bool is_batch, Report& report, Clock::time_point start);
  void look_at_all(bool is_batch, Report& report);
  void forward();
  struct Trial {
    double goal, slack;
    bool is_exact;  // whatever changes H goes into the factor
    int halvings;
  };
  // Of the steps of one update.
  struct Solving {
    bool is_batch = false;
    double goal = 0.0, cut = 0.0;  // what may be left of chi2; energy of a clique's step that is left out
    double predicted = 0.0, gain = 0.0;  // of the step before: decrease by all of it, and by what was taken
    bool is_poor = false, is_rejected = false;
    int num_rejected = 0;  // steps one after the other
    double seconds = 0.0;  // that it took so far, without what it leads to
  };
  void set_goal(Solving& now) const;
  bool get_ahead(const Solving& now, Report& report);
  void stay_ahead(Report& report);
  void learn_seconds(double seconds);
  bool is_rounding(const Solving& now, const Report& report) const;
  bool is_stuck(const Solving& now) const;
  bool may_step(const Solving& now, const Report& report, Clock::time_point start) const;
  void take_step(Solving& now, Report& report);
  bool take(const Tree::Step& step, const Trial& trial, Report& report);
  double relinearize(const std::vector<std::int32_t>& edges, double goal, Report& report);
  std::vector<std::int32_t> active_edges() const;
  void take_all_steps();
  void evaluate_new(Report& report);
  double expected_miss();
  std::vector<std::int32_t> newest_edges() const;
  bool refresh(std::vector<std::int32_t> edges, Report& report);
  void stop_recording();
  // Of edges that may be wrong (judge.cpp).
  void enter(std::int32_t edge);
  void leave(std::int32_t edge);
  void judge_new(Report& report);
  bool revise(bool has_moved, Report& report);
  double present_chi2() const;
  bool is_surprised(double chi2_before) const;
  void judge(bool is_batch, double chi2_before, Report& report, Clock::time_point start);
  void report_decisions(const std::vector<std::int32_t>& fresh, Report& report) const;
  bool is_held(std::int32_t edge) const;
  double innovation(const std::vector<std::int32_t>& edges, const std::vector<const double*>& outputs);
  std::vector<std::int32_t> compatible_with(std::int32_t first, double scale);
  double noise() const;

  Journal journal_;
  Problem problem_;
  Tree tree_;
  Journaled<std::int64_t> next_handle_, updates_;  // one number each
  Journaled<std::uint8_t> is_exact_;               // one: the factor is that of the present estimates
  Journaled<std::uint8_t> is_ahead_;               // one: the present estimates are a full step further
  enum Nonlinearity {
    kMissed,        // by the last step that was tested and not taken, as expected
    kTestedAt,      // what that promised
    kModelShift,    // by how much chi2 of the models is above that of where new edges were evaluated
    kUpdatesAhead,  // since a step was taken
    kNumNonlinearities
  };
  Journaled<double> nonlinearity_;
  bool is_open_ = false;
  Journal::Mark start_;
  std::map<std::int64_t, Journal::Mark> snapshots_;
  std::int64_t next_snapshot_ = 1;
  std::vector<std::int32_t> touched_, last_, new_edges_, leaving_, stale_, stale_before_;
  std::vector<std::int32_t> doubtful_;  // edges of this update that may be wrong
  std::vector<std::uint32_t> stamp_;    // per edge or vertex
  std::uint32_t stamp_now_ = 0;
  double seconds_per_vertex_ = 0.0;  // of a step and of what it leads to, in those so far
};

}  // namespace graphopt::online
