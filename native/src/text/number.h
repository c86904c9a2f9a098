// Numbers in text files: one token -> one double or one 64-bit integer, correctly rounded, locale-free.
//
// Accepted: [+-] digits [. digits] [e|E [+-] digits], with a digit before or after the point. One comma in
// place of the point is accepted too and reported (files written under a locale with decimal commas exist).
// Refused, each with its own message: nan, inf, hexadecimal, D exponents, anything else, and numbers beyond
// the largest double. Numbers below the smallest double become zero.
#pragma once

#include <cstdint>

namespace graphopt::text {

enum class NumberStatus {
  ok,
  decimal_comma,  // ok, but written with a comma
  not_a_number,   // no number at all
  not_finite,     // nan or inf
  hexadecimal,
  d_exponent,  // Fortran's 1D+05
  too_large,   // outside of double or int64
  not_an_integer,
};

inline bool is_usable(NumberStatus status) {
  return status == NumberStatus::ok || status == NumberStatus::decimal_comma;
}

// Why a token was refused, as the second half of a sentence that starts with the token.
const char* explain(NumberStatus status);

NumberStatus parse_double(const char* begin, const char* end, double& value);
NumberStatus parse_int64(const char* begin, const char* end, int64_t& value);

}  // namespace graphopt::text
