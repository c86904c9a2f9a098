#include "text/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "text/number.h"

namespace graphopt::text {
namespace {

struct Token {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool empty() const { return begin == end; }
};

// The tokens of one line, one after the other.
class LineCursor {
 public:
  LineCursor(const char* begin, const char* end) : at_(begin), end_(end) {}

  // The next token; empty at the end of the line or where a comment starts.
  Token next() {
    while (at_ != end_ && is_blank(*at_)) ++at_;
    if (at_ == end_ || *at_ == '#') {
      at_ = end_;
      return {end_, end_};
    }
    const char* begin = at_;
    while (at_ != end_ && !is_blank(*at_)) ++at_;
    return {begin, at_};
  }

 private:
  const char* at_;
  const char* end_;
};

// A tag of the table and the groups its lines fall into.
struct KnownTag {
  const std::string* name = nullptr;
  const TagRule* rule = nullptr;
  std::map<std::pair<int64_t, int64_t>, size_t> group_of;  // (num_ids, num_values) -> index
  std::pair<int64_t, int64_t> last_key{-1, -1};
  size_t last_group = 0;
};

class Reader {
 public:
  Reader(std::string_view text, const std::unordered_map<std::string, TagRule>& rules) : text_(text) {
    for (const auto& [name, rule] : rules) {
      KnownTag& known = tags_[std::string_view(name)];
      known.name = &name;
      known.rule = &rule;
    }
  }

  TaggedLines run() {
    const char* at = text_.data();
    const char* end = at + text_.size();
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at += 3;  // byte order mark
    while (at != end && !out_.error) {
      const void* newline = std::memchr(at, '\n', static_cast<size_t>(end - at));
      const char* line_end = newline != nullptr ? static_cast<const char*>(newline) : end;
      ++out_.num_lines;
      read_line(at, line_end);
      at = line_end == end ? end : line_end + 1;
    }
    return std::move(out_);
  }

 private:
  void read_line(const char* begin, const char* end) {
    LineCursor cursor(begin, end);
    const Token tag = cursor.next();
    if (tag.empty()) return;
    KnownTag* known = find(tag);
    if (known == nullptr) {
      if (end != begin && end[-1] == '\r') --end;
      out_.unknown.push_back(
          {out_.num_lines, static_cast<size_t>(begin - text_.data()), static_cast<size_t>(end - begin)});
      return;
    }
    ids_.clear();
    values_.clear();
    bool ok = false;
    if (known->rule->num_ids >= 0) {
      ok = read_counted(cursor, *known);
    } else if (known->rule->num_ids == kAllIds) {
      ok = read_all_ids(cursor, *known);
    } else if (std::memchr(begin, '|', static_cast<size_t>(end - begin)) != nullptr) {
      ok = read_ids_until_bar(cursor, *known);
    } else {
      ok = read_counted_ids(cursor, *known);
    }
    if (ok) store(*known);
  }

  KnownTag* find(Token tag) {
    const std::string_view name(tag.begin, static_cast<size_t>(tag.end - tag.begin));
    if (last_tag_ != nullptr && *last_tag_->name == name) return last_tag_;
    const auto found = tags_.find(name);
    if (found == tags_.end()) return nullptr;
    return last_tag_ = &found->second;
  }

  // A fixed number of ids, then numbers.
  bool read_counted(LineCursor& cursor, const KnownTag& known) {
    for (int64_t i = 0; i < known.rule->num_ids; ++i) {
      const Token token = cursor.next();
      if (token.empty()) return fail_count(known);
      if (!read_id(token, known)) return false;
    }
    return read_values(cursor, known);
  }

  // Ids to the end of the line.
  bool read_all_ids(LineCursor& cursor, const KnownTag& known) {
    for (Token token = cursor.next(); !token.empty(); token = cursor.next()) {
      if (!read_id(token, known)) return false;
    }
    return true;
  }

  // As many ids as the first token says.
  bool read_counted_ids(LineCursor& cursor, const KnownTag& known) {
    const Token first = cursor.next();
    if (first.empty()) return fail_count(known);
    if (!read_id(first, known)) return false;
    const int64_t count = ids_.front();
    ids_.clear();
    if (count < 0) {
      return fail(*known.name + ": " + std::to_string(count) + " vertices, expected " + known.rule->layout);
    }
    for (int64_t i = 0; i < count; ++i) {
      const Token token = cursor.next();
      if (token.empty()) {
        return fail(*known.name + ": the line ends after " + std::to_string(i) + " of " +
                    std::to_string(count) + " vertex ids");
      }
      if (!read_id(token, known)) return false;
    }
    return read_values(cursor, known);
  }

  // Ids up to "||".
  bool read_ids_until_bar(LineCursor& cursor, const KnownTag& known) {
    for (Token token = cursor.next(); !token.empty(); token = cursor.next()) {
      if (token.end - token.begin == 2 && token.begin[0] == '|' && token.begin[1] == '|') {
        return read_values(cursor, known);
      }
      if (!read_id(token, known)) return false;
    }
    return fail(*known.name + ": no '||' after the vertex ids");
  }

  bool read_id(Token token, const KnownTag& known) {
    int64_t id = 0;
    const NumberStatus status = parse_int64(token.begin, token.end, id);
    if (status == NumberStatus::ok) {
      ids_.push_back(id);
      return true;
    }
    return fail(*known.name + ": id " + quote(token.begin, token.end) + " " +
                (status == NumberStatus::too_large ? "does not fit into 64 bits" : explain(status)));
  }

  bool read_values(LineCursor& cursor, const KnownTag& known) {
    for (Token token = cursor.next(); !token.empty(); token = cursor.next()) {
      double value = 0.0;
      const NumberStatus status = parse_double(token.begin, token.end, value);
      if (!is_usable(status))
        return fail(*known.name + ": " + quote(token.begin, token.end) + " " + explain(status));
      if (status == NumberStatus::decimal_comma && out_.num_decimal_commas++ == 0)
        out_.first_decimal_comma = out_.num_lines;
      values_.push_back(value);
    }
    const std::vector<int64_t>& allowed = known.rule->num_values;
    const auto count = static_cast<int64_t>(values_.size());
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), count) != allowed.end()) return true;
    if (known.rule->longer_allowed && count > *std::max_element(allowed.begin(), allowed.end())) return true;
    return fail_count(known);
  }

  void store(KnownTag& known) {
    const std::pair<int64_t, int64_t> key{static_cast<int64_t>(ids_.size()),
                                          static_cast<int64_t>(values_.size())};
    if (known.last_key != key) {
      const auto [found, is_new] = known.group_of.try_emplace(key, out_.groups.size());
      if (is_new) {
        out_.groups.emplace_back();
        out_.groups.back().tag = *known.name;
        out_.groups.back().num_ids = key.first;
        out_.groups.back().num_values = key.second;
      }
      known.last_key = key;
      known.last_group = found->second;
    }
    Group& group = out_.groups[known.last_group];
    group.ids.insert(group.ids.end(), ids_.begin(), ids_.end());
    group.values.insert(group.values.end(), values_.begin(), values_.end());
    group.lines.push_back(out_.num_lines);
  }

  bool fail_count(const KnownTag& known) {
    const size_t got = ids_.size() + values_.size() + 1;
    const int64_t num_ids =
        known.rule->num_ids >= 0 ? known.rule->num_ids : static_cast<int64_t>(ids_.size());
    std::string expected;
    for (int64_t count : known.rule->num_values) {
      expected += (expected.empty() ? "" : " or ") + std::to_string(num_ids + count + 1);
    }
    if (expected.empty()) expected = "at least " + std::to_string(num_ids + 1);
    return fail(*known.name + ": got " + std::to_string(got) + " tokens, expected " + expected + " (" +
                known.rule->layout + ")");
  }

  bool fail(std::string message) {
    out_.error = ParseError{out_.num_lines, std::move(message)};
    return false;
  }

  std::string_view text_;
  std::unordered_map<std::string_view, KnownTag> tags_;
  KnownTag* last_tag_ = nullptr;
  std::vector<int64_t> ids_;
  std::vector<double> values_;
  TaggedLines out_;
};

}  // namespace

std::string quote(const char* begin, const char* end) {
  constexpr long kShown = 40;
  const bool cut = end - begin > kShown;
  std::string out = "'";
  for (const char* at = begin; at != (cut ? begin + kShown : end); ++at)
    out += *at >= ' ' && *at <= '~' ? *at : '?';
  return out + (cut ? "...'" : "'");
}

TaggedLines read_tagged_lines(std::string_view text, const std::unordered_map<std::string, TagRule>& rules) {
  return Reader(text, rules).run();
}

}  // namespace graphopt::text
