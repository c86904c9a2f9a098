// The factor of H as a tree of cliques that is replaced in part.
//
//   P H P' = L L',   a clique: frontal vertices F (its pivots), separator S (rows below), its parent holds S
//
// Vertices have positions in the order of elimination. When H changes in some vertices, the cliques on the
// paths from them to the roots go, and their vertices are ordered, grouped and eliminated anew; the subtrees
// below stay, with the Schur complements that they pass on (Kaess et al., iSAM2, IJRR 2012, here over dense
// supernodes of any size). Edges are evaluated when they are assembled, so nothing per edge is stored: an
// edge belongs to the clique of the vertex that is eliminated first. No function calls itself.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linear/front.h"
#include "linear/kept_memory.h"
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
  Front front() const;
  double* diagonal() const { return memory_.data; }
  double* below() const { return memory_.data + below_; }
  double* update() const { return memory_.data + update_; }
  // Diagonal of H of the separator's scalars, as far as the subtree's edges make it up.
  std::vector<double> gross;
  std::int64_t bytes() const { return memory_.bytes; }

 private:
  int num_pivots_, num_below_;
  std::int64_t below_, update_;
  KeptMemory::Piece memory_;
};

struct Shape {
  std::vector<std::int32_t> frontals, separator;  // vertices by position; the separator's as they were
  int num_pivots = 0, num_below = 0;              // scalars
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

  // x (scalars, zero) <- inverse of H times b, as far as it is worth it: forward from vertices whose share of
  // the gain exceeds `threshold`, back where the energy of the step exceeds it. Returns the predicted gain.
  struct Step {
    double gain = 0.0;
    std::int64_t cliques = 0;
    std::vector<std::int32_t> vertices;  // with a step
  };
  double forward(const std::vector<std::int32_t>& active, const double* b);
  Step backward(double threshold);
  const double* step() const { return dx_.data(); }

  // Columns of the inverse of H: rows of `of` for the scalars of `v`, (rows, dim) column-major.
  void inverse_columns(std::int32_t v, const std::vector<std::int32_t>& of, double* out);
  // Diagonal blocks of the inverse for all vertices, at `first[v]`, column-major.
  void all_marginals(const std::vector<std::int64_t>& first, double* out);

  bool has_clique(std::int32_t v) const { return v < clique_of_.size() && clique_of_[v] >= 0; }
  // Drop a vertex that is not free any more from the index; its clique must be gone.
  std::int32_t owner(std::int32_t edge) const;
  double scale(std::int64_t scalar) const { return scale_[scalar]; }
  std::int64_t num_cliques() const { return num_cliques_[0]; }
  std::int64_t bytes() const;
  double nonzeros() const;

 private:
  struct Plan {
    std::vector<std::int32_t> order;  // vertices; positions ascend
    struct Node {
      int first, count;  // of `order`
      int parent;        // node or -1
    };
    std::vector<Node> nodes;                           // children first
    std::vector<std::shared_ptr<const Shape>> shapes;  // of the nodes
    double flops = 0.0;
  };
  struct Share {  // of an edge in a front
    std::int32_t edge;
    const double* outputs;  // of `linearize`; of a prior H
  };
  // A front to be computed: its edges, and the children that it sums.
  struct Job {
    std::int32_t clique;  // or a number of the caller's
    std::shared_ptr<const Shape> shape;
    std::vector<const Clique*> children;
    std::vector<std::int32_t> edges;
    std::vector<Share> shares;
    std::shared_ptr<Numbers> numbers;
  };

  void collect(const std::vector<std::int32_t>& touched);
  Plan plan(const std::vector<std::int32_t>& vertices, const std::vector<std::int32_t>& orphans,
            const std::vector<std::int32_t>& last, const std::vector<std::int32_t>& boundary);
  void find_edges(Job& job) const;
  void evaluate(std::vector<Job>& jobs, EliminationCounts& counts);
  void compute(Job& job);
  void assemble(const Job& job, bool into_update);
  void add_children(const Job& job, bool into_update);
  void finish(const Job& job);
  std::vector<std::int32_t> unsupported(const Job& job, int pivot) const;
  void clear_local(const Shape& shape);
  std::vector<std::int32_t> path_to_root(const std::vector<std::int32_t>& cliques);
  void forward_path(const std::vector<std::int32_t>& path, double* gain);
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
  Journaled<double> scale_;                // per scalar: 1 / L_ii

  // What follows holds nothing between calls.
  std::vector<std::int32_t> affected_, vertices_, orphans_;  // of collect()
  std::vector<char> mark_;                                   // per clique
  std::vector<std::int32_t> number_;                         // per vertex, -1
  std::vector<std::int32_t> local_;                          // per vertex: first row of the front, or -1
  std::vector<std::vector<std::int32_t>> orphans_of_;        // per number of a vertex
  std::vector<std::int64_t> position_;                       // of a child's rows
  std::vector<std::int32_t> row_;
  std::vector<double> gross_, min_pivot_, pivots_, below_values_;
  vm::AlignedVector<double> buffer_, padded_;
  std::vector<vm::AlignedVector<double>> outputs_;  // per edge kind
  std::vector<std::vector<double>> prior_outputs_;
  std::vector<double> x_;              // of inverse_columns(), whatever it left
  std::vector<double> y_, dx_;         // per scalar; zero beside the last pass
  std::vector<std::int32_t> path_;     // cliques of the last forward pass, children first
  std::vector<std::int32_t> stepped_;  // vertices of the last backward pass
};

}  // namespace graphopt::online
