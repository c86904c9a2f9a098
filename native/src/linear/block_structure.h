// From the vertices and edges of a graph to the blocks of H: numbers of the blocks, their pattern, and where
// each edge adds its parts. See graphopt/problem/structure.py for the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linear/block_pattern.h"
#include "parallel/plain_array.h"

namespace graphopt {

// Vertices of one set; the arrays have one entry per vertex.
struct VertexFlags {
  std::int64_t size = 0;
  const bool* free = nullptr;
  const bool* eliminated = nullptr;  // only read where free
  const std::int64_t* ids = nullptr;
  std::int32_t dim = 0;
  std::int64_t* block = nullptr;   // out: number of the block, -1 where not free
  std::int64_t* offset = nullptr;  // out: first scalar, -1 where not free
};

struct Numbering {
  std::vector<std::int32_t> dims;    // (nb)
  PlainArray<std::int64_t> ids;      // (nb)
  PlainArray<std::int64_t> offsets;  // (nb + 1)
  std::int64_t num_kept = 0;
};

// Number the free vertices: those that stay by ascending id, then those that are eliminated.
Numbering number_blocks(const std::vector<VertexFlags>& sets);

// Edges of one type; the blocks of their vertices follow from rows and the tables of the slots.
struct EdgeSlots {
  std::int64_t size = 0;
  int arity = 0;
  const std::int32_t* rows = nullptr;      // (size, arity)
  std::vector<const std::int64_t*> table;  // [slot]: block of each vertex of the slot's set
  std::int64_t* block_offset = nullptr;    // out (size, pairs), -1: not optimized
  bool* block_transposed = nullptr;        // out (size, pairs)
};

// The upper triangle of blocks that the edges touch, by columns, and each edge's places in it.
std::shared_ptr<BlockPattern> block_pattern(const std::vector<std::int32_t>& dims,
                                            const std::vector<EdgeSlots>& edges);

}  // namespace graphopt
