// Errors of the C library: a status and a sentence.
#pragma once

#include <stdexcept>
#include <string>

#include "graphopt/graphopt.h"

namespace graphopt::embed {

class Error : public std::runtime_error {
 public:
  Error(graphopt_status what_kind, const std::string& what) : std::runtime_error(what), status(what_kind) {}
  const graphopt_status status;
};

}  // namespace graphopt::embed
