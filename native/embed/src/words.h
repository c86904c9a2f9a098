// Words of a text file with their lines, for the readers of types.txt and graph.txt.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>

#include "error.h"
#include "text/number.h"

namespace graphopt::embed {

class Words {
 public:
  Words(const std::string& text, const std::string& name)
      : name_(name), at_(text.data()), end_(text.data() + text.size()) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(GRAPHOPT_FORMAT_ERROR, name_ + ":" + std::to_string(line_) + ": " + what);
  }

  bool at_end() {
    skip();
    return at_ == end_;
  }

  std::string word(const char* what) {
    skip();
    const char* begin = at_;
    while (at_ != end_ && !std::isspace(static_cast<unsigned char>(*at_))) ++at_;
    if (begin == at_) fail(std::string("expected ") + what + ", got the end of the file");
    return std::string(begin, at_);
  }

  void expect(const char* wanted) {
    if (const std::string got = word(wanted); got != wanted)
      fail("expected '" + std::string(wanted) + "', got '" + got + "'");
  }

  // Looks ahead, takes nothing.
  bool next_is(const std::string& wanted) {
    skip();
    const auto left = static_cast<std::size_t>(end_ - at_);
    return left > wanted.size() && std::memcmp(at_, wanted.data(), wanted.size()) == 0 &&
           std::isspace(static_cast<unsigned char>(at_[wanted.size()])) != 0;
  }

  std::int64_t integer(const char* what, std::int64_t least, std::int64_t most) {
    const std::string token = word(what);
    std::int64_t value = 0;
    const auto status = text::parse_int64(token.data(), token.data() + token.size(), value);
    if (!text::is_usable(status) || value < least || value > most)
      fail(std::string("expected ") + what + " from " + std::to_string(least) + " to " +
           std::to_string(most) + ", got '" + token + "'");
    return value;
  }
  int count(const char* what, int most) { return static_cast<int>(integer(what, 0, most)); }

  double number(const char* what) {
    const std::string token = word(what);
    double value = 0.0;
    const auto status = text::parse_double(token.data(), token.data() + token.size(), value);
    if (!text::is_usable(status)) fail(std::string("expected ") + what + ", got '" + token + "'");
    return value;
  }

  // 16 hexadecimal digits: the bits of a double, also of infinities.
  double bits(const char* what) {
    const std::string token = word(what);
    std::uint64_t value = 0;
    bool good = token.size() == 16;
    for (const char c : token) {
      good &= std::isxdigit(static_cast<unsigned char>(c)) != 0;
      value = value << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (!good) fail(std::string("expected ") + what + " as 16 hexadecimal digits, got '" + token + "'");
    double result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }

 private:
  void skip() {
    while (at_ != end_ && std::isspace(static_cast<unsigned char>(*at_))) line_ += *at_++ == '\n';
  }

  const std::string name_;
  const char *at_, *const end_;
  std::int64_t line_ = 1;
};

}  // namespace graphopt::embed
