// Plain numbers in text: tables of a known number of rows (BAL, Bundler) and lines of any length (COLMAP,
// trajectories).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace graphopt::text {

struct Table {
  std::vector<int64_t> integers;  // (rows, num_integers)
  std::vector<double> values;     // (rows, num_values)
  size_t offset = 0;              // where reading stopped: at the next token or at the end of the text
  int64_t line = 0;               // its line
  std::optional<ParseError> error;
};

// Reads `rows` times `num_integers` integers and `num_values` numbers from the tokens after `offset`; line
// ends are blanks. A table that the rest of the text is too short for is refused before any memory is asked
// for.
Table read_table(std::string_view text, size_t offset, int64_t line, int64_t rows, int64_t num_integers,
                 int64_t num_values);

struct RaggedRows {
  std::vector<double> values;
  std::vector<int64_t> row_start;  // (rows + 1,) into values
  std::vector<int64_t> lines;      // (rows,) line numbers from 1
  std::optional<ParseError> error;
};

// One row per line that is neither blank nor a comment. `separator` is one more character that separates
// tokens (',' for CSV; 0: none).
RaggedRows read_ragged_rows(std::string_view text, char separator);

}  // namespace graphopt::text
