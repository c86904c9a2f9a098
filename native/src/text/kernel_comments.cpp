#include "text/kernel_comments.h"

#include <algorithm>

#include "text/number.h"

namespace graphopt::text {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t begin = 0, end = 0; begin < line.size(); begin = end) {
    while (begin < line.size() && is_blank(line[begin])) ++begin;
    for (end = begin; end < line.size() && !is_blank(line[end]);) ++end;
    if (end > begin) words.push_back(line.substr(begin, end - begin));
  }
  return words;
}

bool parse_number(std::string_view digits, int64_t& value) {
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         parse_int64(digits.data(), digits.data() + digits.size(), value) == NumberStatus::ok;
}

// Empty, or what is wrong.
std::string read_words(const std::vector<std::string_view>& words, KernelComment& out) {
  if (words.size() < 3) return std::to_string(words.size()) + " words";
  out.tag = words[0];
  out.name = words[1];
  const std::string width = quote(words[2].data(), words[2].data() + words[2].size());
  const NumberStatus status = parse_double(words[2].data(), words[2].data() + words[2].size(), out.width);
  if (!is_usable(status)) return "the width " + width + " " + explain(status);
  if (!(out.width > 0.0)) return "the width is " + width + ", must be > 0";
  for (size_t k = 3; k < words.size(); ++k) {
    const size_t dash = std::min(words[k].find('-'), words[k].size());
    std::pair<int64_t, int64_t> range;
    bool is_good = parse_number(words[k].substr(0, dash), range.first);
    range.second = range.first;
    if (dash < words[k].size()) is_good &= parse_number(words[k].substr(dash + 1), range.second);
    if (!is_good || range.second < range.first)
      return quote(words[k].data(), words[k].data() + words[k].size()) + " names no edges";
    out.edges.push_back(range);
  }
  return "";
}

}  // namespace

KernelComments read_kernel_comments(std::string_view text) {
  constexpr std::string_view kKey = "kernel:";
  KernelComments out;
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (text[begin] == '#') {
      std::string_view line = text.substr(begin + 1, end - begin - 1);
      while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
      if (line.substr(0, kKey.size()) == kKey) {
        KernelComment comment;
        comment.line = number;
        const std::string wrong = read_words(words_of(line.substr(kKey.size())), comment);
        if (!wrong.empty()) {
          out.error = ParseError{number, wrong +
                                             "; expected '# kernel: TAG NAME WIDTH' and maybe numbers of "
                                             "edges, such as 0-41"};
          return out;
        }
        out.comments.push_back(std::move(comment));
      }
    }
    begin = end + 1;
  }
  return out;
}

}  // namespace graphopt::text
