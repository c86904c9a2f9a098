// Single passes over the edges of a graph that count and mark, on all threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace graphopt::edges {

// out[i] = table[ids[i] - low], -1 for an id outside the table; returns the smallest entry of out, 0 at most.
std::int32_t look_up(const std::int64_t* ids, std::int64_t size, std::int64_t low, const std::int32_t* table,
                     std::int64_t span, std::int32_t* out);

// mask[rows[i * stride]] = true for all edges i.
void mark(const std::int32_t* rows, int stride, std::int64_t num_edges, bool* mask);

enum class Kind { kIdentity, kDiagonal, kFull };

// What information matrices (num, dim, dim) have in common; row: which ones, null: the first `num`.
Kind kind_of(const double* information, std::int64_t num, int dim, const std::int64_t* row);

bool all_finite(const double* numbers, std::int64_t size);

// Every one of the matrices (num, dim, dim) is its own transpose.
bool all_symmetric(const double* matrices, std::int64_t num, int dim);

// out[i] = i.
void count_up(std::int64_t* out, std::int64_t size);

// table[ids[i] - low] = rows of the ids, or one value for all of them; ids are low .. low + span - 1.
void place_by_id(const std::int64_t* ids, std::int64_t size, std::int64_t low, std::int32_t* table,
                 std::optional<std::int32_t> value);

// The common difference of neighbouring numbers; none: there are several, or fewer than two numbers.
template <class T>
std::optional<std::int64_t> common_step(const T* numbers, std::int64_t size);

struct Coupling {
  std::int64_t optimized = 0;   // edges with both vertices of a pair of slots optimized
  std::int64_t eliminated = 0;  // of these, those with an eliminated one
};

// (a place where kept blocks meet, a kept block), for all of them that an edge knows:
//   eliminated block e (from num_kept on), every `stride`-th of them at place (e - num_kept) / stride
//   edge i without an eliminated vertex but with two kept ones       at place num_eliminated / stride + 1 + i
struct Meeting {
  std::int32_t place, block;
};

struct Couplings {
  std::vector<Coupling> pairs;    // of slots (0, 1), (0, 2), ..., (1, 2), ...
  std::vector<Meeting> meetings;  // in the order of the edges, whatever the number of threads
};

// table[slot]: block of each row, -1: not optimized, from num_kept on: eliminated. stride 0: no meetings.
Couplings find_couplings(const std::int32_t* rows, int arity, std::int64_t num_edges,
                         const std::vector<const std::int64_t*>& table, std::int64_t num_kept,
                         std::int64_t num_eliminated, std::int64_t stride);

}  // namespace graphopt::edges
