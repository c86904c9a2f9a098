// The factor of H as a tree of cliques that is replaced in part.
//
//   P H P' = L L',   a clique: frontal vertices F (its pivots), separator S (rows below), its parent holds S
//
// Vertices have positions in the order of elimination. When H changes in some vertices, the cliques on the
// paths from them to the roots go, and their vertices are ordered, grouped and eliminated anew; the subtrees
// below stay, with the Schur complements that they pass on (Kaess et al., iSAM2, IJRR 2012, here over dense
// supernodes of any size). An edge belongs to the clique of the vertex that is eliminated first.
//
// The gradient b at the estimates is kept as y with b = L y, a piece per clique: the predicted decrease of
// chi2 is |y|^2, clique by clique. The step dx with L' dx = y of a vertex needs the path from its clique to
// the root. Where cliques are replaced, their L y is the right-hand side of the new ones. No function calls
// itself.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "linear/front.h"
#include "linear/kept_memory.h"
#include "linear/ordering.h"
#include "online/problem.h"

namespace graphopt::online {

// An update left a direction without information.
struct Singular {
  std::vector<std::int32_t> vertices;  // that can move along it
};

// Numbers of a clique; what another one has seen of it never changes.
class Numbers {
 public:
  Numbers(int num_pivots, int num_below);
  ~Numbers() { KeptMemory::instance().give_back(memory_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  Front front() const { return Front{num_pivots_, num_below_, diagonal(), below(), update(), nullptr}; }
  double* diagonal() const { return memory_.data; }
  double* below() const { return memory_.data + below_; }
  double* update() const { return memory_.data + update_; }
  // Diagonal of H of the separator's scalars, as far as the subtree's edges make it up.
  std::vector<double> gross;
  bool is_raised = false;  // a pivot got more information than its edges have
  // Of each pivot's part of a step, the share that is taken; empty: all of it. See Tree::limit_points.
  std::vector<double> share;
  std::int64_t bytes() const { return memory_.bytes; }

 private:
  int num_pivots_, num_below_;
  std::int64_t below_, update_;
  KeptMemory::Piece memory_;
};

struct Shape {
  std::vector<std::int32_t> frontals, separator;  // vertices by position; the separator's as they were
  int num_pivots = 0, num_below = 0;              // scalars
  std::vector<std::int32_t> edges;                // whose first vertex, in the order, is a frontal
};

struct Clique {
  std::shared_ptr<const Shape> shape;
  std::shared_ptr<const Numbers> numbers;
};

struct EliminationCounts {
  std::int64_t vertices = 0, cliques = 0, edges = 0;
  bool ordered = false;
  double flops = 0.0;
};

class Tree {
 public:
  Tree(Journal& journal, Problem& problem);

  // Eliminate anew what depends on these vertices: free ones, new ones among them, and those that have just
  // stopped being free (their clique, if it is still there). `last`: to be eliminated last, in this order.
  EliminationCounts eliminate(const std::vector<std::int32_t>& touched,
                              const std::vector<std::int32_t>& last);
  // The same structure with new numbers: cliques of the owners of these edges, and what is above.
  EliminationCounts refresh(const std::vector<std::int32_t>& edges);

  // Schur complement on the neighbours of `vertices`, which hold all their edges: one prior for each part.
  std::vector<std::shared_ptr<const Prior>> marginalize(const std::vector<std::int32_t>& vertices);

  // y += inverse of L times what eliminate() or refresh() left, and `pending` of these vertices, which
  // becomes zero.
  void forward(const std::vector<std::int32_t>& vertices);
  // |y|^2: the decrease of chi2 that a full step promises.
  double remaining() const { return total_energy_[0]; }
  // The step dx of all cliques in which it has more energy than `threshold`. Nothing changes.
  struct Step {
    double gain = 0.0;  // by which it lowers chi2
    std::int64_t cliques = 0;
    std::vector<std::int32_t> vertices;  // with a step
  };
  Step backward(double threshold);
  const double* step() const { return dx_.data(); }  // by `offset`, zero beside the last one's vertices
  // The full step of these vertices alone, by `offset`; valid until the next call of something here.
  const double* steps_of(const std::vector<std::int32_t>& vertices);
  // What eliminate() left, dropped with the update that it was of.
  void clear_right_hand_side();
  // After an error that came in the midst of something: marks and sums of one call are as between calls.
  void forget_marks();
  // y <- 0, before all of the gradient goes in again.
  void forget_gradient();

  // Of the inverse of H the rows of some vertices and the columns of others, column-major.
  void covariance(const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& columns,
                  double* out);
  // Diagonal blocks of the inverse for all vertices, at `first[v]`, column-major.
  void all_marginals(const std::vector<std::int64_t>& first, double* out);

  bool has_clique(std::int32_t v) const { return v < clique_of_.size() && clique_of_[v] >= 0; }
  // Drop a vertex that is not free any more from the index; its clique must be gone.
  std::int32_t owner(std::int32_t edge) const;
  std::int64_t num_cliques() const { return num_cliques_[0]; }
  std::int64_t bytes() const;
  // Refused where a pivot got more information than its edges have: covariances would be too small.
  void require_covariances() const;

 private:
  struct Plan {
    std::vector<std::int32_t> vertex;  // by number: those to eliminate, then the boundary, which stays
    int inner = 0;                     // number of the former
    std::vector<std::int32_t> order;   // vertices; positions ascend
    struct Node {
      int first, count;  // of `order`
      int parent;        // node or -1
    };
    std::vector<Node> nodes;                           // children first
    std::vector<std::int32_t> edges;                   // that these vertices have
    std::vector<std::shared_ptr<const Shape>> shapes;  // of the nodes
    double flops = 0.0;
    bool is_minimum_degree = false;
  };
  // A front to be computed, and the children that it sums.
  struct Job {
    std::int32_t clique;  // or a number of the caller's
    std::shared_ptr<const Shape> shape;
    std::vector<const Clique*> children;
    std::shared_ptr<Numbers> numbers = nullptr;
    std::int32_t parent = -1;  // number of the job that sums this one
    // while it is computed
    std::vector<double> floors = {}, min_pivot = {};  // per pivot
    int failed_pivot = -1;
    bool goes_on = true;  // after a pivot that failed: with more on the diagonal
    std::exception_ptr error = nullptr;
  };

  // Rows of a child from `first` on, and of the front from `row` on.
  struct Run {
    int row, first, count;
  };
  // Of a thread that assembles a front; it holds nothing between fronts.
  struct Scratch {
    std::vector<std::int32_t> local;     // per vertex: first row of the front, or -1
    std::vector<std::int64_t> position;  // of a child's rows
    std::vector<Run> runs;
    std::vector<std::int32_t> row;
    std::vector<double*> rows_of_front;  // per row of a child
    std::vector<double> gross;
  };

  void collect(const std::vector<std::int32_t>& touched);
  std::vector<std::int32_t> edges_of(const std::vector<std::int32_t>& vertices,
                                     const std::vector<std::int32_t>& cliques);
  void plan(Plan& plan, const std::vector<std::int32_t>& candidates, const std::vector<std::int32_t>& orphans,
            const std::vector<std::int32_t>& last);
  BlockGraph graph_of(Plan& plan, const std::vector<std::int32_t>& candidates,
                      const std::vector<std::int32_t>& orphans);
  bool takes(const Plan& plan, std::int32_t edge) const;
  EliminationTree order(Plan& plan, const BlockGraph& graph, const std::vector<std::int32_t>& last) const;
  std::vector<std::int32_t> order_of(const Plan& plan, const BlockGraph& graph,
                                     const std::vector<std::int32_t>& last) const;
  void group(Plan& plan, const EliminationTree& tree, const std::vector<std::int32_t>& weights) const;
  void shape(Plan& plan, const BlockGraph& graph) const;
  void give_edges(const Plan& plan, const std::vector<std::int32_t>& position,
                  const std::vector<std::shared_ptr<Shape>>& shapes) const;
  void add_children_to(Job& job, const std::vector<std::int32_t>& children,
                       const std::vector<Clique>& fresh) const;
  // Numbers of all jobs, children first, and the cliques that they make up; the job that fails first, or -1.
  std::int32_t compute(std::vector<Job>& jobs, std::vector<Clique>& results);
  std::int32_t compute_in_order(std::vector<Job>& jobs, std::vector<Clique>& results);
  bool compute(Job& job, Scratch& own, const Team& team, int* failed);
  [[noreturn]] void throw_failure(const Job& job) const;
  void prepare(Job& job) const;
  void require_scratch(int num_threads);
  void fill(Job& job, Scratch& own);
  bool raise_floor(Job& job, int pivot);
  void assemble(const Job& job, Scratch& own, bool into_update);
  void assemble_prior(const Front& front, std::int32_t edge, Scratch& own, bool into_update);
  void assemble_edge(const Front& front, std::int32_t edge, Scratch& own, bool into_update);
  bool find_rows(const Shape& child, int num_pivots, Scratch& own);
  void add_children(const Job& job, Scratch& own, bool into_update);
  void add_ordered(const Front& front, const double* source, int size, Scratch& own, bool into_update);
  void add_unordered(const Front& front, const double* source, int size, Scratch& own, bool into_update);
  void add_block(const Run& later, const Run& earlier, const double* source, const Scratch& own, int shift);
  std::vector<std::int32_t> unsupported(const Job& job) const;
  void limit_points(const Job& job, const Scratch& own);
  void forward_columns(std::int32_t clique, Eigen::MatrixXd& x);
  void clear_local(const Shape& shape, Scratch& own);
  std::vector<std::int32_t> path_to_root(const std::vector<std::int32_t>& cliques);
  void forward_path(const std::vector<std::int32_t>& path, std::vector<double>& y);
  void gather(const std::vector<std::int32_t>& vertices, const double* scalars, double* out) const;
  void take_right_hand_side(const std::vector<std::int32_t>& cliques);
  void add_right_hand_side(const std::vector<std::int32_t>& vertices, const double* values);
  void set_energy(std::int32_t clique, double energy);
  std::vector<std::int32_t> starts(double threshold) const;
  void backward_clique(std::int32_t clique);
  bool visit(std::int32_t clique, double threshold, Step& step);
  std::int32_t new_clique();
  void require_scalars();
  Front front_of(std::int32_t clique) const { return cliques_[clique].numbers->front(); }

  Journal& journal_;
  Problem& problem_;
  Journaled<Clique> cliques_;
  Journaled<std::int32_t> parent_;  // per clique, -1
  Journaled<std::vector<std::int32_t>> children_;
  Places places_;
  Journaled<std::int32_t> clique_of_;      // per vertex, -1
  Journaled<std::int64_t> position_of_;    // per vertex
  Journaled<std::int64_t> next_position_;  // one number
  Journaled<std::int64_t> num_cliques_;    // one number
  Journaled<double> y_;                    // per scalar
  Journaled<double> energy_;               // per clique: |y|^2
  Journaled<double> total_energy_;         // one number

  // What follows holds nothing between calls.
  std::vector<std::int32_t> affected_, vertices_, orphans_;  // of collect()
  std::vector<char> mark_;                                   // per clique
  std::vector<std::int32_t> job_of_;                         // per clique, -1
  std::vector<std::int32_t> number_;                         // per vertex, -1
  std::vector<std::vector<std::int32_t>> orphans_of_;        // per number of a vertex
  std::vector<char> edge_mark_;                              // per edge
  std::vector<Scratch> scratch_;                             // per thread
  std::mutex determining_;                                   // of Problem::is_determined
  std::vector<double> pivots_, below_values_;
  vm::AlignedVector<double> buffer_, padded_;
  std::vector<double> x_;    // whatever the last solution left
  std::vector<double> rhs_;  // per scalar; zero beside rhs_vertices_
  std::vector<std::int32_t> rhs_vertices_;
  std::vector<double> dx_;  // per scalar; zero beside the last pass
  // Where those of its vertices were, which may be gone since: first scalar, number of scalars.
  std::vector<std::pair<std::int64_t, int>> stepped_;
};

}  // namespace graphopt::online
