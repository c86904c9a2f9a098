// One pass over a text of tagged lines (.g2o, TORO .graph, iSAM): `TAG id id ... number number ...`.
//
// Lines are grouped by (tag, number of ids, number of numbers); a group keeps its lines in file order, the
// ids as 64-bit integers and the numbers as doubles, row by row. A line whose tag is not in the table is
// remembered as a span of the text. A '#' at the start of a token starts a comment. Time is linear in the
// size of the text, whatever the bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace graphopt::text {

// How many of a tag's leading tokens are ids.
constexpr int64_t kAllIds = -1;  // every token of the line (FIX)
constexpr int64_t kCountedIds =
    -2;  // the first token says how many follow, or "||" ends them (edges of any arity)

struct TagRule {
  int64_t num_ids = 0;              // >= 0, kAllIds or kCountedIds
  std::vector<int64_t> num_values;  // numbers that may stand after the ids; empty: not checked
  bool longer_allowed = false;      // further numbers are read all the same
  std::string layout;               // what a line should hold, for error messages
};

struct Group {
  std::string tag;
  int64_t num_ids = 0;
  int64_t num_values = 0;
  std::vector<int64_t> ids;    // (rows, num_ids)
  std::vector<double> values;  // (rows, num_values)
  std::vector<int64_t> lines;  // (rows,) line numbers from 1
};

struct UnknownLine {
  int64_t line = 0;
  size_t begin = 0, size = 0;  // span of the text without the line end
};

struct ParseError {
  int64_t line = 0;
  std::string message;
};

struct TaggedLines {
  std::vector<Group> groups;
  std::vector<UnknownLine> unknown;
  std::optional<ParseError> error;  // the first one; what stands before it has been read
  int64_t num_lines = 0;
  int64_t num_decimal_commas = 0, first_decimal_comma = 0;  // how many, line of the first
};

TaggedLines read_tagged_lines(std::string_view text, const std::unordered_map<std::string, TagRule>& rules);

// A token as it is shown in messages: at most 40 characters, unprintable ones replaced.
std::string quote(const char* begin, const char* end);

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

}  // namespace graphopt::text
