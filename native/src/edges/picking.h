// Some rows of many, on all threads.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::edges {

// Row i of `out` is row index[i] of `values`, rows of `row_bytes`.
void take_rows(const unsigned char* values, std::int64_t row_bytes, const std::int64_t* index,
               std::int64_t size, unsigned char* out);

// Row index[i] of `target` becomes row i of `values`; no row twice.
void put_rows(const unsigned char* values, std::int64_t row_bytes, const std::int64_t* index,
              std::int64_t size, unsigned char* target);

// mask[rows[index[i] * stride]] = true.
void mark_chosen(const std::int32_t* rows, int stride, const std::int64_t* index, std::int64_t size,
                 bool* mask);

// Where `value` is among values, ascending.
std::vector<std::int64_t> places_of(const std::uint16_t* values, std::int64_t size, std::uint16_t value);

// The vertices in one slot of edges: number[row] goes to `kept` where the vertex stays, else to `eliminated`
// and kept is -1. number, gone: of the vertices of a set. kept_stride: slots of an edge in `kept`.
void number_slot(const std::int32_t* rows, int stride, std::int64_t num_edges, const std::int32_t* number,
                 const bool* gone, std::int32_t* kept, int kept_stride, std::int32_t* eliminated);

}  // namespace graphopt::edges
