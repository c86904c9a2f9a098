// Symbolic factorisation: supernodes, their rows, the assembly tree, and where each block of H goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linear/amalgamation.h"
#include "linear/block_pattern.h"
#include "linear/ordering.h"

namespace graphopt {

// One dense front. Its pivots are consecutive scalars of the elimination order.
struct Supernode {
  std::int32_t first_step, num_steps;  // blocks, in elimination order
  std::int32_t first_pivot;            // scalar, in elimination order
  std::int32_t num_pivots;             // n
  std::int32_t num_below;              // m
  std::int32_t parent;                 // supernode or -1
  std::int64_t rows_begin;             // into SymbolicFactor::rows, parent_row: num_below entries
  std::int64_t diagonal, below;        // offsets of L11 and L21 in the factor
  double cost;                         // estimated nanoseconds on one core
};

// A block of H as it is added to a front: element (r, c) of the front's lower triangle.
struct AssemblyBlock {
  std::int64_t source;    // into values
  std::int32_t row, col;  // first row and column in the front
  std::int16_t num_rows, num_cols;
  bool transposed;  // the stored block is num_cols x num_rows
};

// One core: measured shape. A constant, moving the Schur complement to the parent, clearing and filling the
// pivots' columns, arithmetic (at less than peak while fronts are small).
constexpr FrontModel kCoreModel{250.0, 12.0, 0.5, 0.25, 30.0, 0.0, 0};

// A GPU: a front occupies a workgroup for as long as its pivots take, one after the other, and each level of
// the tree costs a dispatch; arithmetic is cheap.
constexpr FrontModel kDeviceModel{4000.0, 30.0, 0.05, 0.05, 250.0, 6000.0, 64};

struct SymbolicFactor {
  SymbolicFactor(const BlockPattern& pattern, const std::string& ordering,
                 const FrontModel& model = kCoreModel, const FactorCosts& costs = {});

  // With the order of elimination of another factor of a pattern with the same blocks.
  SymbolicFactor(const BlockPattern& pattern, const SymbolicFactor& other,
                 const FrontModel& model = kCoreModel);

  std::string ordering;                     // the one that was taken
  std::vector<std::int32_t> perm, inverse;  // (nb) step <-> block
  std::vector<std::int32_t> step_offset;    // (nb + 1) first scalar of a step
  std::vector<std::int32_t> scalar_source;  // (dim) scalar of the elimination order -> scalar of the matrix
  std::vector<Supernode> supernodes;        // in elimination order, children before parents
  std::vector<std::int32_t> supernode_of_step;         // (nb)
  std::vector<std::int32_t> children_begin, children;  // supernodes, ascending
  std::vector<std::int32_t> rows;          // below rows of each supernode: scalars in elimination order
  std::vector<std::int32_t> parent_row;    // the same rows, as row of the parent's front (pivots first)
  std::vector<std::int64_t> blocks_begin;  // (num supernodes + 1)
  std::vector<AssemblyBlock> blocks;
  std::int64_t factor_size = 0;  // doubles
  double flops = 0.0;            // of the ordering, without padding or amalgamation
  double nonzeros = 0.0;         // of the ordering

 private:
  void analyse(const BlockPattern& pattern, const BlockGraph& graph, const EliminationTree& tree,
               const FrontModel& model);
  void find_supernodes(const EliminationTree& tree, const std::vector<std::int32_t>& dims,
                       const FrontModel& model);
  void find_rows(const BlockGraph& graph);
  void place_in_parents(const std::vector<std::vector<std::int32_t>>& row_steps);
  void place_blocks(const BlockPattern& pattern, const BlockGraph& graph);
  AssemblyBlock placed(const BlockPattern& pattern, const Supernode& node, std::int64_t k, int row,
                       int col) const;
};

// Where each scalar of `values` belongs if front s is a column-major matrix of num_pivots + num_below rows
// that starts at offsets[s]; kNowhere: above the diagonal. (values_size)
constexpr std::uint32_t kNowhere = 0xffffffffu;
void column_major_places(const SymbolicFactor& symbolic, const BlockPattern& pattern,
                         const std::vector<std::int64_t>& offsets, std::uint32_t* places);

}  // namespace graphopt
