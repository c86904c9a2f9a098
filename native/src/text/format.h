// Numbers to text: the shortest decimal that reads back to the same double.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace graphopt::text {

// Rows `tag id ... number ...`, one per line, separated by single blanks. An empty tag is left out;
// `with_count` puts the number of ids before them. ids (rows, num_ids), values (rows, num_values), both
// row-major.
std::string format_rows(std::string_view tag, bool with_count, const int64_t* ids, int64_t num_ids,
                        const double* values, int64_t num_values, int64_t rows);

// Row r holds values[row_start[r] .. row_start[r + 1]). digits: significant ones (1 to 17), as C's %.*g has
// them; 0: the shortest.
std::string format_ragged_rows(const double* values, const int64_t* row_start, int64_t rows, int digits);

}  // namespace graphopt::text
