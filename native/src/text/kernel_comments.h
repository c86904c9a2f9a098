// Robust kernels in .g2o texts, which g2o skips as comments:
//
//   # kernel: TAG NAME WIDTH               of all edges of a tag
//   # kernel: TAG NAME WIDTH 0-41 57       of some: numbers among the lines of that tag, from 0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace graphopt::text {

struct KernelComment {
  int64_t line = 0;
  std::string tag, name;
  double width = 0.0;                              // > 0
  std::vector<std::pair<int64_t, int64_t>> edges;  // first and last; empty: all
};

struct KernelComments {
  std::vector<KernelComment> comments;
  std::optional<ParseError> error;  // the first one; what stands before it has been read
};

KernelComments read_kernel_comments(std::string_view text);

}  // namespace graphopt::text
