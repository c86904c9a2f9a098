// Expressions as text, by precedence climbing:
//
//   comparison  < <= > >= ==     then  + -     then  * /     then  unary + -     then  ^ ** (right to left)
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "batch/expression.h"

namespace graphopt::batch {
namespace {

constexpr int kDeepest = 500;  // brackets and operators within each other
constexpr int kMostParameters = 1000;

enum Precedence { kComparison = 1, kSum, kProduct, kSign, kPower };

struct Function {
  const char* name;
  int arity;
  Op op;
};
constexpr Function kFunctions[] = {
    {"abs", 1, Op::ABS},      {"sign", 1, Op::SIGN},     {"floor", 1, Op::FLOOR},    {"sqrt", 1, Op::SQRT},
    {"exp", 1, Op::EXP},      {"log", 1, Op::LOG},       {"ln", 1, Op::LOG},         {"sin", 1, Op::SIN},
    {"cos", 1, Op::COS},      {"tan", 1, Op::TAN},       {"asin", 1, Op::ASIN},      {"arcsin", 1, Op::ASIN},
    {"acos", 1, Op::ACOS},    {"arccos", 1, Op::ACOS},   {"atan", 1, Op::ATAN},      {"arctan", 1, Op::ATAN},
    {"atan2", 2, Op::ATAN2},  {"arctan2", 2, Op::ATAN2}, {"pow", 2, Op::POW},        {"power", 2, Op::POW},
    {"min", 2, Op::MIN},      {"max", 2, Op::MAX},       {"minimum", 2, Op::MIN},    {"maximum", 2, Op::MAX},
    {"where", 3, Op::SELECT}, {"neg", 1, Op::NEG},       {"logical_not", 1, Op::NOT}};
// Made of others.
enum class Compound { kSquare, kCube, kInverse, kSinh, kCosh, kTanh, kLog2, kLog10 };
constexpr std::pair<const char*, Compound> kCompounds[] = {
    {"square", Compound::kSquare}, {"cube", Compound::kCube},  {"inv", Compound::kInverse},
    {"sinh", Compound::kSinh},     {"cosh", Compound::kCosh},  {"tanh", Compound::kTanh},
    {"log2", Compound::kLog2},     {"log10", Compound::kLog10}};

class Parser {
 public:
  Parser(const std::string& text, const std::unordered_map<std::string, int>& names, int num_columns,
         Graph& graph)
      : text_(text), names_(names), num_columns_(num_columns), graph_(graph) {}

  Id parse() {
    const Id root = expression(kComparison);
    if (!at_end()) fail("an operator or the end");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) {
    skip_space();
    const std::string got = at_ < text_.size() ? "'" + token() + "'" : "the end of the text";
    throw ParseError(at_, "expected " + expected + ", got " + got);
  }

  // Name, number or character at the current position.
  std::string token() const {
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(byte(end)) || text_[end] == '_' || text_[end] == '.')) ++end;
    return text_.substr(at_, end > at_ ? end - at_ : 1);
  }

  int byte(std::size_t at) const { return static_cast<unsigned char>(text_[at]); }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(byte(at_))) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool take(std::string_view symbol) {
    skip_space();
    if (text_.compare(at_, symbol.size(), symbol) != 0) return false;
    at_ += symbol.size();
    return true;
  }

  Id expression(int least) {
    if (++depth_ > kDeepest)
      throw ParseError(at_, "expected at most " + std::to_string(kDeepest) + " levels of nesting");
    Id left = sign();
    while (binary(left, least)) {
    }
    --depth_;
    return left;
  }

  Id sign() {
    if (take("-")) return graph_.make(Op::NEG, expression(kSign));
    if (take("+")) return expression(kSign);
    return atom();
  }

  // Apply the next operator to `left` if it binds at least so strongly.
  bool binary(Id& left, int least) {
    skip_space();
    const std::size_t start = at_;
    const auto join = [&](Op op, int next) { left = graph_.make(op, left, expression(next)); };
    if (least <= kPower && (take("**") || take("^"))) {
      join(Op::POW, kSign);
    } else if (least <= kProduct && take("*")) {
      join(Op::MUL, kSign);
    } else if (least <= kProduct && take("/")) {
      join(Op::DIV, kSign);
    } else if (least <= kSum && take("+")) {
      join(Op::ADD, kProduct);
    } else if (least <= kSum && take("-")) {
      join(Op::SUB, kProduct);
    } else if (least <= kComparison && comparison(left)) {
    } else {
      at_ = start;
      return false;
    }
    return true;
  }

  bool comparison(Id& left) {
    if (take("<=")) {
      left = graph_.make(Op::LE, left, expression(kSum));
    } else if (take("<")) {
      left = graph_.make(Op::LT, left, expression(kSum));
    } else if (take(">=")) {
      left = graph_.make(Op::LE, expression(kSum), left);
    } else if (take(">")) {
      left = graph_.make(Op::LT, expression(kSum), left);
    } else if (take("==")) {
      left = graph_.make(Op::EQ, left, expression(kSum));
    } else {
      return false;
    }
    return true;
  }

  Id atom() {
    skip_space();
    if (take("(")) {
      const Id inner = expression(kComparison);
      if (!take(")")) fail("')'");
      return inner;
    }
    if (at_ < text_.size() && (std::isdigit(byte(at_)) || text_[at_] == '.')) return number();
    if (at_ < text_.size() && (std::isalpha(byte(at_)) || text_[at_] == '_')) return named();
    fail("a number, a name, '-' or '('");
  }

  Id number() {
    const char* begin = text_.c_str() + at_;
    std::size_t length = 0;
    const auto digits = [&] {
      while (std::isdigit(static_cast<unsigned char>(begin[length]))) ++length;
    };
    digits();
    if (begin[length] == '.') ++length, digits();
    if (begin[length] == 'e' || begin[length] == 'E') {
      const std::size_t mark = length++;
      if (begin[length] == '+' || begin[length] == '-') ++length;
      const std::size_t first = length;
      digits();
      if (length == first) length = mark;
    }
    if (length == 1 && begin[0] == '.') fail("a number");
    const double value = std::strtod(std::string(begin, length).c_str(), nullptr);
    at_ += length;
    return graph_.constant(value);
  }

  Id named() {
    const std::size_t start = at_;
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(byte(end)) || text_[end] == '_')) ++end;
    const std::string name = text_.substr(start, end - start);
    at_ = end;
    if (const auto found = names_.find(name); found != names_.end()) return graph_.data(found->second);
    if (take("(")) return call(name, start);
    if (name == "pi") return graph_.constant(3.14159265358979323846);
    if (const int number = numbered(name, 'p'); number > 0 && number <= kMostParameters)
      return graph_.parameter(number - 1);
    if (names_.empty()) {
      const int column = numbered(name, 'x');
      if (column > 0 && column <= num_columns_) return graph_.data(column - 1);
    }
    at_ = start;
    fail(names_.empty()
             ? "x1 to x" + std::to_string(num_columns_) + ", a parameter p1, p2, ..., or a function"
             : "a name of the data, a parameter p1, p2, ..., or a function");
  }

  // n of "xn" and "x_n"; 0 for other names
  static int numbered(const std::string& name, char letter) {
    std::size_t at = name.size() > 1 && name[1] == '_' ? 2 : 1;
    if (name[0] != letter || at == name.size() || name.size() - at > 6) return 0;
    for (std::size_t k = at; k < name.size(); ++k)
      if (!std::isdigit(static_cast<unsigned char>(name[k]))) return 0;
    return std::atoi(name.c_str() + at);
  }

  Id call(const std::string& name, std::size_t start) {
    for (const Function& function : kFunctions) {
      if (name != function.name) continue;
      Id operands[3] = {0, 0, 0};
      arguments(name, operands, function.arity);
      return graph_.make(function.op, operands[0], operands[1], operands[2]);
    }
    for (const auto& [known, compound] : kCompounds) {
      if (name != known) continue;
      Id operand = 0;
      arguments(name, &operand, 1);
      return compose(compound, operand);
    }
    at_ = start;
    fail("a function (abs, exp, log, sqrt, sin, cos, tan, pow, min, max, where, ...)");
  }

  void arguments(const std::string& name, Id* operands, int count) {
    for (int k = 0; k < count; ++k) {
      operands[k] = expression(kComparison);
      const bool last = k + 1 == count;
      if (!take(last ? ")" : ","))
        fail(std::string(last ? "')'" : "','") + " (" + name + " takes " + std::to_string(count) + ")");
    }
  }

  Id compose(Compound compound, Id x) {
    const auto number = [&](double value) { return graph_.constant(value); };
    const auto make = [&](Op op, Id a, Id b) { return graph_.make(op, a, b); };
    const auto exp_of = [&](Id a) { return graph_.make(Op::EXP, a); };
    switch (compound) {
      case Compound::kSquare:
        return make(Op::POW, x, number(2.0));
      case Compound::kCube:
        return make(Op::POW, x, number(3.0));
      case Compound::kInverse:
        return make(Op::DIV, number(1.0), x);
      case Compound::kSinh:
      case Compound::kCosh: {
        const Id other = exp_of(graph_.make(Op::NEG, x));
        return make(Op::MUL, number(0.5),
                    make(compound == Compound::kSinh ? Op::SUB : Op::ADD, exp_of(x), other));
      }
      case Compound::kTanh: {
        const Id plus = make(Op::ADD, exp_of(make(Op::MUL, number(2.0), x)), number(1.0));
        return make(Op::SUB, number(1.0), make(Op::DIV, number(2.0), plus));
      }
      case Compound::kLog2:
        return make(Op::MUL, graph_.make(Op::LOG, x), number(1.0 / std::log(2.0)));
      case Compound::kLog10:
        return make(Op::MUL, graph_.make(Op::LOG, x), number(1.0 / std::log(10.0)));
    }
    throw std::logic_error("not composed");
  }

  const std::string& text_;
  const std::unordered_map<std::string, int>& names_;
  const int num_columns_;
  Graph& graph_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Id parse(const std::string& text, const std::unordered_map<std::string, int>& names, int num_columns,
         Graph& graph) {
  return Parser(text, names, num_columns, graph).parse();
}

}  // namespace graphopt::batch
