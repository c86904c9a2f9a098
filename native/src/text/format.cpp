#include "text/format.h"

#include <charconv>
#include <cmath>

namespace graphopt::text {
namespace {

constexpr size_t kMaxDoubleChars = 32;
constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

// Writes into one growing buffer.
class Writer {
 public:
  explicit Writer(size_t expected_size) { out_.reserve(expected_size); }

  void text(std::string_view part) {
    separate();
    out_.append(part);
  }

  void integer(int64_t value) {
    char buffer[kMaxDoubleChars];
    text({buffer, static_cast<size_t>(std::to_chars(buffer, buffer + kMaxDoubleChars, value).ptr - buffer)});
  }

  // Whole numbers without exponent, so that 100000 is not 1e+05. digits: significant ones, 0: the shortest.
  void number(double value, int digits = 0) {
    if (std::fabs(value) < kMaxExactInteger && value == std::trunc(value) &&
        !(value == 0.0 && std::signbit(value))) {
      integer(static_cast<int64_t>(value));
      return;
    }
    char buffer[kMaxDoubleChars];
    char* const end = buffer + kMaxDoubleChars;
    const auto written = digits == 0 ? std::to_chars(buffer, end, value)
                                     : std::to_chars(buffer, end, value, std::chars_format::general, digits);
    text({buffer, static_cast<size_t>(written.ptr - buffer)});
  }

  void end_line() {
    out_.push_back('\n');
    at_line_start_ = true;
  }

  std::string take() { return std::move(out_); }

 private:
  void separate() {
    if (!at_line_start_) out_.push_back(' ');
    at_line_start_ = false;
  }

  std::string out_;
  bool at_line_start_ = true;
};

}  // namespace

std::string format_rows(std::string_view tag, bool with_count, const int64_t* ids, int64_t num_ids,
                        const double* values, int64_t num_values, int64_t rows) {
  Writer writer(static_cast<size_t>(rows) *
                (tag.size() + 8 * static_cast<size_t>(num_ids) + 12 * static_cast<size_t>(num_values) + 1));
  for (int64_t row = 0; row < rows; ++row) {
    if (!tag.empty()) writer.text(tag);
    if (with_count) writer.integer(num_ids);
    for (int64_t i = 0; i < num_ids; ++i) writer.integer(*ids++);
    for (int64_t i = 0; i < num_values; ++i) writer.number(*values++);
    writer.end_line();
  }
  return writer.take();
}

std::string format_ragged_rows(const double* values, const int64_t* row_start, int64_t rows, int digits) {
  Writer writer(rows > 0 ? 12 * static_cast<size_t>(row_start[rows] - row_start[0]) : 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = row_start[row]; i < row_start[row + 1]; ++i) writer.number(values[i], digits);
    writer.end_line();
  }
  return writer.take();
}

}  // namespace graphopt::text
