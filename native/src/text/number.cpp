#include "text/number.h"

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace graphopt::text {
namespace {

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int kMaxExactPower = 22;  // 10^22 is the largest power of ten that a double holds exactly
constexpr uint64_t kMaxExactMantissa = uint64_t{1} << 53;  // integers up to 2^53 are exact
constexpr int64_t kExponentLimit = 1000000;                // further digits of an exponent change nothing

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equals_ignoring_case(const char* begin, const char* end, std::string_view word) {
  if (static_cast<size_t>(end - begin) != word.size()) return false;
  for (char expected : word) {
    if (lower(*begin++) != expected) return false;
  }
  return true;
}

// Why is [begin, end) no number? Only called for tokens that are refused.
NumberStatus diagnose(const char* begin, const char* end) {
  if (begin != end && (*begin == '+' || *begin == '-')) ++begin;
  for (std::string_view word :
       {"nan", "-nan", "inf", "infinity", "nan(ind)", "-nan(ind)", "1.#inf", "1.#qnan", "1.#ind"}) {
    if (equals_ignoring_case(begin, end, word)) return NumberStatus::not_finite;
  }
  if (end - begin > 2 && begin[0] == '0' && lower(begin[1]) == 'x') return NumberStatus::hexadecimal;
  const char* at = begin;
  while (at != end && (is_digit(*at) || *at == '.')) ++at;
  if (at != begin && at != end && lower(*at) == 'd') {
    ++at;
    if (at != end && (*at == '+' || *at == '-')) ++at;
    const char* digits = at;
    while (at != end && is_digit(*at)) ++at;
    if (at == end && at != digits) return NumberStatus::d_exponent;
  }
  return NumberStatus::not_a_number;
}

// What one pass over the characters of a number finds.
struct Decimal {
  uint64_t mantissa = 0;   // leading significant digits, exact while num_digits <= 19
  int64_t num_digits = 0;  // significant digits seen (leading zeros are not)
  int64_t exponent = 0;    // value = mantissa * 10^exponent
  const char* separator = nullptr;
  bool any_digit = false;
};

const char* scan_digits(const char* at, const char* end, bool fraction, Decimal& number) {
  for (; at != end && is_digit(*at); ++at) {
    number.any_digit = true;
    if (fraction) --number.exponent;
    if (number.num_digits == 0 && *at == '0') continue;
    if (++number.num_digits <= 19) number.mantissa = number.mantissa * 10 + static_cast<uint64_t>(*at - '0');
  }
  return at;
}

// Reads e[+-]digits at `at`; false if there is an e without digits.
bool scan_exponent(const char*& at, const char* end, int64_t& exponent) {
  ++at;
  bool negative = false;
  if (at != end && (*at == '+' || *at == '-')) negative = *at++ == '-';
  if (at == end || !is_digit(*at)) return false;
  int64_t written = 0;
  for (; at != end && is_digit(*at); ++at) {
    if (written < kExponentLimit) written = written * 10 + (*at - '0');
  }
  exponent += negative ? -written : written;
  return true;
}

// Correctly rounded value of a well-formed number that the exact path cannot take.
NumberStatus convert_slowly(const char* begin, const char* end, const Decimal& number, double& value) {
  std::string with_point;
  if (number.separator != nullptr && *number.separator == ',') {
    with_point.assign(begin, end);
    with_point[static_cast<size_t>(number.separator - begin)] = '.';
    begin = with_point.data();
    end = begin + with_point.size();
  }
  const auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc::result_out_of_range) {
    if (number.exponent + number.num_digits > 0) return NumberStatus::too_large;
    value = 0.0;
    return NumberStatus::ok;
  }
  return result.ec == std::errc() && result.ptr == end ? NumberStatus::ok : NumberStatus::not_a_number;
}

}  // namespace

const char* explain(NumberStatus status) {
  switch (status) {
    case NumberStatus::ok:
    case NumberStatus::decimal_comma:
      return "is a number";
    case NumberStatus::not_a_number:
      return "is not a number";
    case NumberStatus::not_finite:
      return "is not finite";
    case NumberStatus::hexadecimal:
      return "is hexadecimal, expected a decimal number";
    case NumberStatus::d_exponent:
      return "has a D exponent, expected E";
    case NumberStatus::too_large:
      return "is out of range";
    case NumberStatus::not_an_integer:
      return "is not an integer";
  }
  return "is not a number";
}

NumberStatus parse_double(const char* begin, const char* end, double& value) {
  const char* at = begin;
  bool negative = false;
  if (at != end && (*at == '+' || *at == '-')) negative = *at++ == '-';
  const char* unsigned_begin = at;
  Decimal number;
  at = scan_digits(at, end, false, number);
  if (at != end && (*at == '.' || *at == ',')) {
    number.separator = at;
    at = scan_digits(at + 1, end, true, number);
  }
  if (!number.any_digit) return diagnose(begin, end);
  if (at != end && (*at == 'e' || *at == 'E') && !scan_exponent(at, end, number.exponent)) {
    return NumberStatus::not_a_number;
  }
  if (at != end) return diagnose(begin, end);

  // Clinger's exact case: an integer and a power of ten that are both exact need one rounding.
  if (number.num_digits <= 19 && number.mantissa <= kMaxExactMantissa && number.exponent >= -kMaxExactPower &&
      number.exponent <= kMaxExactPower) {
    value = static_cast<double>(number.mantissa);
    value =
        number.exponent < 0 ? value / kPowersOfTen[-number.exponent] : value * kPowersOfTen[number.exponent];
  } else if (number.num_digits == 0) {
    value = 0.0;
  } else {
    const NumberStatus status = convert_slowly(unsigned_begin, end, number, value);
    if (status != NumberStatus::ok) return status;
  }
  if (negative) value = -value;
  return number.separator != nullptr && *number.separator == ',' ? NumberStatus::decimal_comma
                                                                 : NumberStatus::ok;
}

NumberStatus parse_int64(const char* begin, const char* end, int64_t& value) {
  if (begin != end && *begin == '+' && end - begin > 1 && is_digit(begin[1])) ++begin;
  const auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc::result_out_of_range) {
    return result.ptr == end ? NumberStatus::too_large : NumberStatus::not_an_integer;
  }
  if (result.ec != std::errc() || result.ptr != end) return NumberStatus::not_an_integer;
  return NumberStatus::ok;
}

}  // namespace graphopt::text
