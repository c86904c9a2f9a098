#include "text/table.h"

#include <string>

#include "text/number.h"

namespace graphopt::text {
namespace {

// Tokens of a text in which line ends mean nothing; counts lines for messages.
class TokenStream {
 public:
  TokenStream(std::string_view text, size_t offset, int64_t line)
      : begin_(text.data()),
        at_(begin_ + (offset < text.size() ? offset : text.size())),
        end_(begin_ + text.size()),
        line_(line) {}

  void skip_blanks() {
    for (; at_ != end_ && (is_blank(*at_) || *at_ == '\n'); ++at_) line_ += *at_ == '\n';
  }

  bool next(const char*& begin, const char*& end) {
    skip_blanks();
    begin = at_;
    while (at_ != end_ && !is_blank(*at_) && *at_ != '\n') ++at_;
    end = at_;
    return begin != end;
  }

  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  size_t remaining() const { return static_cast<size_t>(end_ - at_); }
  int64_t line() const { return line_; }

 private:
  const char* begin_;
  const char* at_;
  const char* end_;
  int64_t line_;
};

template <class Number, class Parse>
bool read_numbers(TokenStream& stream, int64_t count, Parse parse, Number* out,
                  std::optional<ParseError>& error) {
  for (int64_t i = 0; i < count; ++i) {
    const char *begin = nullptr, *end = nullptr;
    if (!stream.next(begin, end)) {
      error = ParseError{stream.line(), "the file ends early"};
      return false;
    }
    const NumberStatus status = parse(begin, end, out[i]);
    if (!is_usable(status)) {
      error = ParseError{stream.line(), quote(begin, end) + " " + explain(status)};
      return false;
    }
  }
  return true;
}

}  // namespace

Table read_table(std::string_view text, size_t offset, int64_t line, int64_t rows, int64_t num_integers,
                 int64_t num_values) {
  Table table;
  TokenStream stream(text, offset, line);
  const uint64_t columns = static_cast<uint64_t>(num_integers) + static_cast<uint64_t>(num_values);
  const uint64_t possible_tokens =
      stream.remaining() / 2 + 1;  // a token and what separates it take two bytes
  if (rows < 0 || num_integers < 0 || num_values < 0 || columns > possible_tokens ||
      (columns > 0 && static_cast<uint64_t>(rows) > possible_tokens / columns)) {
    table.error = ParseError{line, "the file ends early: " + std::to_string(rows) + " rows of " +
                                       std::to_string(columns) + " numbers cannot stand in the remaining " +
                                       std::to_string(stream.remaining()) + " bytes"};
    return table;
  }
  table.integers.resize(static_cast<size_t>(rows * num_integers));
  table.values.resize(static_cast<size_t>(rows * num_values));
  for (int64_t row = 0; row < rows; ++row) {
    if (!read_numbers(stream, num_integers, parse_int64, table.integers.data() + row * num_integers,
                      table.error) ||
        !read_numbers(stream, num_values, parse_double, table.values.data() + row * num_values,
                      table.error)) {
      break;
    }
  }
  stream.skip_blanks();
  table.offset = stream.offset();
  table.line = stream.line();
  return table;
}

RaggedRows read_ragged_rows(std::string_view text, char separator) {
  RaggedRows out;
  out.row_start.push_back(0);
  const char* at = text.data();
  const char* end = at + text.size();
  int64_t line = 1;
  const auto finish_row = [&out](int64_t row_line) {
    const auto size = static_cast<int64_t>(out.values.size());
    if (size == out.row_start.back()) return;
    out.row_start.push_back(size);
    out.lines.push_back(row_line);
  };
  while (at != end) {
    if (*at == '\n') {
      finish_row(line++);
      ++at;
    } else if (is_blank(*at) || (separator != 0 && *at == separator)) {
      ++at;
    } else if (*at == '#') {
      while (at != end && *at != '\n') ++at;
    } else {
      const char* begin = at;
      while (at != end && *at != '\n' && !is_blank(*at) && !(separator != 0 && *at == separator)) ++at;
      double value = 0.0;
      const NumberStatus status = parse_double(begin, at, value);
      if (!is_usable(status)) {
        out.error = ParseError{line, quote(begin, at) + " " + explain(status)};
        break;
      }
      out.values.push_back(value);
    }
  }
  finish_row(line);
  return out;
}

}  // namespace graphopt::text
