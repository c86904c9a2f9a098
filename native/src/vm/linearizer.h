// Evaluates all edges of a graph: chi2, and the normal equations H = sum J' W Omega J, b = -sum J' W Omega e.
//
// prepare() fixes, once per structure, the order of the edges (by the block they write, for locality), their
// partition over threads, and where each edge adds its blocks. A block that one edge, or one run of edges,
// alone writes is stored; one that one partition alone writes is added to directly; one that several write
// gets a copy per partition, and the copies are added up in the order of the partitions. So the result
// depends on the number of partitions only, never on the scheduling of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/call_mutex.h"
#include "vm/bitmap.h"
#include "vm/lanes.h"
#include "vm/program.h"

namespace graphopt::vm {

using ProgramPtr = std::shared_ptr<const Program>;

// An array that somebody else owns and `owner` keeps alive.
template <class T>
struct View {
  T* data = nullptr;
  std::int64_t rows = 0;
  int columns = 0;
  std::shared_ptr<void> owner;

  T* row(std::int64_t i) const { return data + i * columns; }
  std::int64_t size() const { return rows * columns; }
};

struct VertexSet {
  View<double> estimate;  // (n, storage_dim)
  ProgramPtr oplus;
  std::vector<std::int64_t> offset;     // first scalar in dx, -1: not optimized
  std::vector<std::int32_t> optimized;  // rows with an offset
  std::vector<std::vector<double>> backups;
  int tangent_dim = 0;
  // Diagonal blocks are collected as packed upper triangles: worth it where many edges add to a large block.
  bool packed = false;
};

// What the caller gives for a group of edges of one type.
struct EdgeGroupInput {
  ProgramPtr chi2, linearize, kernel;  // kernel may be null
  std::vector<int> vertex_sets, parameter_sets;
  View<const std::int32_t> vertex_rows, parameter_rows;  // (m, arity), (m, num_parameters)
  View<const double> measurement, information, kernel_width;
  View<const std::int64_t> block_offset;  // (m, num_pairs)
  View<const bool> block_transposed;
};

// One block or segment that an edge adds to, or both of a vertex.
struct Piece {
  int rows = 0, columns = 0;
  int slot = 0;           // of the (first) vertex
  int pair = 0;           // which pair of slots, in the caller's order
  bool diagonal = false;  // a pair of a vertex with itself
  bool segment = false;   // of b; follows the vertex's diagonal block
  bool packed = false;    // the upper triangle by columns and then the segment of b; collected in arenas
  int row_offset = 0;     // where it starts in an edge's row of outputs
  int triangle() const { return rows * (rows + 1) / 2; }
  int length() const { return packed ? triangle() + rows : rows * columns; }
};

// How the pieces of an edge's row get to where they belong.
struct Step {
  enum Kind {
    kRecord,  // a packed piece: whole vectors are added to an arena
    kRun,     // diagonal block and segment of a vertex that many edges in a row have: added up first
    kPiece
  };
  Kind kind = kPiece;
  int piece = 0;
  int vectors = 0;        // of a record or run
  int first = 0;          // of a run: where its sum is
  bool prefetch = false;  // of a piece
};

struct EdgeGroup {
  ProgramPtr chi2, linearize, kernel;
  std::vector<int> vertex_sets, parameter_sets;
  std::int64_t num_rows = 0;                   // edges that the caller gave
  std::int64_t num_edges = 0, num_chunks = 0;  // that take part
  int measurement_dim = 0, information_dim = 0, residual_dim = 0, num_outputs = 0;
  std::vector<Piece> pieces;                // by pairs
  std::vector<Step> steps;                  // that do all pieces
  int run_size = 0;                         // of the sums of all runs
  std::vector<std::int32_t> row_registers;  // of the linearize program: all pieces
  std::vector<std::pair<int, int>> plain;   // begin and end, in whole vectors, of pieces that are not packed
  std::vector<std::int32_t> all;            // sorted position -> the caller's row, of all edges
  std::vector<std::int32_t> order;          // the same of those that take part
  UnsetVector<std::int32_t> vertex_rows;    // [chunk][slot][lane]
  UnsetVector<std::int32_t> parameter_rows;
  AlignedVector<double> data;              // [chunk][measurement, information, width of a kernel][lane]
  UnsetVector<std::int64_t> destinations;  // [sorted position][piece], see Destination
  std::vector<std::int64_t> first_chunk;   // [partition + 1]
  std::vector<char> common;                // [chunk]: all its edges add to the same places
  EdgeGroupInput input;                    // data arrays are released by prepare()

  int arity() const { return static_cast<int>(vertex_sets.size()); }
  int data_rows() const { return measurement_dim + information_dim + (kernel ? 1 : 0); }
  int num_lanes(std::int64_t chunk) const {
    return static_cast<int>(std::min<std::int64_t>(kLanes, num_edges - chunk * kLanes));
  }
};

// Registers of a frame after a program ran on some edges of a chunk.
struct Results {
  std::int64_t chunk = 0;
  int first = 0, count = 0;  // lanes of the chunk
  const double* frame = nullptr;
  int width = kLanes;  // lanes of a register

  // Lane `first` of a register, and those after it.
  const double* of(std::int32_t r) const {
    return frame + static_cast<std::size_t>(r) * static_cast<std::size_t>(width);
  }
  std::int64_t edge(int lane) const { return chunk * kLanes + first + lane; }
};

// Where an edge adds a piece: an offset and three flags in one number, or kSkip.
struct Destination {
  static constexpr std::int64_t kSkip = -1;
  static std::int64_t make(std::int64_t offset, bool sole, bool arena, bool transposed) {
    return offset * 8 + (sole ? 4 : 0) + (arena ? 2 : 0) + (transposed ? 1 : 0);
  }
  static std::int64_t offset(std::int64_t code) { return code >> 3; }
  // No other edge writes there: the piece is stored instead of added.
  static bool sole(std::int64_t code) { return (code & 4) != 0; }
  static bool arena(std::int64_t code) { return (code & 2) != 0; }
  static bool transposed(std::int64_t code) { return (code & 1) != 0; }
};

// A piece that several partitions add to, and its copies.
struct Reduction {
  std::int64_t offset = 0;      // in values or b
  std::int64_t b_offset = 0;    // of a packed piece
  std::int32_t length = 0;      // of a copy
  std::int32_t packed_dim = 0;  // > 0: copies are packed pieces of a vertex of this size
  bool segment = false;
  std::int64_t first_copy = 0, num_copies = 0;  // in copies_
};

struct Copy {
  std::int32_t partition = 0;
  std::int64_t offset = 0;  // in that partition's arena
};

// What an optimization needs of whoever evaluates the edges: H and b, chi2, and a stack of estimates.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  virtual double linearize(double* values, std::int64_t values_size, double* b, std::int64_t b_size) = 0;
  virtual double chi2() = 0;
  virtual void oplus(const double* dx, std::int64_t size) = 0;
  virtual void push() = 0;
  virtual void pop() = 0;
  virtual void discard_top() = 0;
};

class Linearizer final : public Evaluation {
 public:
  int add_vertex_set(View<double> estimate, ProgramPtr oplus, std::vector<std::int64_t> offset);
  int add_parameter_set(View<const double> values);
  int add_edge_group(EdgeGroupInput input);
  // Refer to another array of the same shape from now on.
  void refer_to_estimate(int set, double* estimate);
  void refer_to_parameters(int set, const double* values);
  void set_edge_data(int group, View<const double> measurement, View<const double> information,
                     View<const double> kernel_width);
  // Information becomes weight (num_rows) times the identity, all kernels have this width.
  void set_weights(int group, const View<const double>& weight, double kernel_width);
  void prepare(std::int64_t values_size, std::int64_t b_size);

  // Let only some edges of each group take part: masks over the caller's rows. The blocks stay as they are;
  // data has to be set afterwards.
  void choose_edges(const std::vector<View<const bool>>& masks);

  double linearize(double* values, std::int64_t values_size, double* b, std::int64_t b_size) override;
  double chi2() override;
  void edge_chi2(int group, double* out);
  void errors(int group, double* out);
  void oplus(const double* dx, std::int64_t size) override;
  void push() override;
  void pop() override;
  void discard_top() override;
  std::optional<std::pair<int, std::int64_t>> first_non_finite();

  const EdgeGroup& group(int index) const;

 private:
  // What one thread needs while it runs programs. Threads keep theirs: allocating and filling the registers
  // takes longer than a small graph.
  struct Workspace {
    AlignedVector<double> frame, narrow_frame, kernel_frame, rows, runs;
    std::vector<std::int64_t> run_codes;  // of each piece of a run that is being summed
    ProgramPtr program, narrow, kernel;   // whose constants are in the frames

    double* prepare(const ProgramPtr& next, const ProgramPtr& next_kernel);
    double* prepare_narrow(const ProgramPtr& next);
  };
  enum Use { kLinearize, kChi2, kUpdate, kNumUses };

  void require_prepared() const;
  void for_each_partition(const std::function<void(int)>& task);
  void sort_edges(EdgeGroup& group);
  void pack_rows(EdgeGroup& group);
  void pack_data(EdgeGroup& group, const View<const double>& measurement,
                 const View<const double>& information, const View<const double>& kernel_width);
  void choose_packing();
  void choose_partitions();
  void may_stop_at(std::int64_t row) const;
  void arrange();
  void assign_destinations();
  void find_sole_destinations();
  void find_shared_destinations();
  void find_common_destinations();
  void choose_steps(EdgeGroup& group) const;
  void find_sole_runs();
  void add_lanes(const EdgeGroup& group, const Results& results, Workspace& workspace, double* arena,
                 double* values, double* b) const;
  void finish_runs(const EdgeGroup& group, Workspace& workspace, double* arena, double* values,
                   double* b) const;
  template <int Width>
  void load_chunk(const EdgeGroup& group, const Program& program, std::int64_t chunk, int first,
                  double* frame) const;
  template <class Visit>
  void run_program(const EdgeGroup& group, const ProgramPtr& program, std::int64_t begin, std::int64_t end,
                   Workspace& workspace, Visit visit) const;
  static Workspace& workspace(Use use);
  double linearize_partition(int partition, double* values, double* b);
  void reduce(const Reduction& reduction, double* values, double* b) const;
  double sum_partitions(const std::vector<double>& sums) const;

  CallMutex mutex_;
  std::vector<VertexSet> vertex_sets_;
  std::vector<View<const double>> parameter_sets_;
  std::vector<std::unique_ptr<EdgeGroup>> groups_;
  bool prepared_ = false;
  int num_partitions_ = 1;
  std::int64_t values_size_ = 0, b_size_ = 0;
  std::vector<AlignedVector<double>> arenas_;  // [partition]
  Bitmap stored_;  // of values: written by Destination::sole, so need not be cleared
  std::vector<Reduction> reductions_;
  std::vector<Copy> copies_;
};

}  // namespace graphopt::vm
