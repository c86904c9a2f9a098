#include "batch/expression.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace graphopt::batch {
namespace {

constexpr int kArity[] = {
#define X(name, arity) arity,
    GRAPHOPT_BATCH_OPS(X)
#undef X
};

constexpr int kLargestWholePower = 8;  // that becomes multiplications

std::uint64_t bits(double value) {
  std::uint64_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

double truth(bool x) { return x ? 1.0 : 0.0; }

}  // namespace

int arity(Op op) { return kArity[static_cast<int>(op)]; }

double evaluate(Op op, double a, double b, double c) {
  switch (op) {
    case Op::ADD:
      return a + b;
    case Op::SUB:
      return a - b;
    case Op::MUL:
      return a * b;
    case Op::DIV:
      return a / b;
    case Op::POW:
      return std::pow(a, b);
    case Op::ATAN2:
      return std::atan2(a, b);
    case Op::MIN:
      return a <= b || a != a ? a : b;
    case Op::MAX:
      return a >= b || a != a ? a : b;
    case Op::LT:
      return truth(a < b);
    case Op::LE:
      return truth(a <= b);
    case Op::EQ:
      return truth(a == b);
    case Op::AND:
      return truth(a != 0.0 && b != 0.0);
    case Op::OR:
      return truth(a != 0.0 || b != 0.0);
    case Op::NEG:
      return -a;
    case Op::ABS:
      return std::fabs(a);
    case Op::SIGN:
      return a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : a;
    case Op::FLOOR:
      return std::floor(a);
    case Op::NOT:
      return truth(a == 0.0);
    case Op::SQRT:
      return std::sqrt(a);
    case Op::EXP:
      return std::exp(a);
    case Op::LOG:
      return std::log(a);
    case Op::SIN:
      return std::sin(a);
    case Op::COS:
      return std::cos(a);
    case Op::TAN:
      return std::tan(a);
    case Op::ASIN:
      return std::asin(a);
    case Op::ACOS:
      return std::acos(a);
    case Op::ATAN:
      return std::atan(a);
    case Op::SELECT:
      return a != 0.0 ? b : c;
    case Op::CONST:
    case Op::DATA:
    case Op::PARAMETER:
      break;
  }
  throw std::logic_error("a leaf has no operands");
}

Id Graph::find_or_add(const Node& node, Key key) {
  const auto [at, is_new] = table_.try_emplace(key, size());
  if (is_new) nodes_.push_back(node);
  return at->second;
}

Id Graph::constant(double value) {
  Node node;
  node.value = value;
  return find_or_add(node, {static_cast<std::uint64_t>(Op::CONST), bits(value)});
}

Id Graph::data(int column) {
  Node node;
  node.op = Op::DATA;
  node.rate = kByData;
  node.index = column;
  num_columns_ = std::max(num_columns_, column + 1);
  return find_or_add(node, {static_cast<std::uint64_t>(Op::DATA), static_cast<std::uint64_t>(column)});
}

Id Graph::parameter(int number) {
  Node node;
  node.op = Op::PARAMETER;
  node.rate = kByParameter;
  node.index = number;
  num_parameters_ = std::max(num_parameters_, number + 1);
  return find_or_add(node, {static_cast<std::uint64_t>(Op::PARAMETER), static_cast<std::uint64_t>(number)});
}

Id Graph::whole_power(Id a, int n) {
  if (n == 1) return a;
  const Id half = whole_power(a, n / 2);
  const Id square = make(Op::MUL, half, half);
  return n % 2 == 0 ? square : make(Op::MUL, square, a);
}

Id Graph::power(Id a, Id b) {
  if ((*this)[b].op != Op::CONST) return -1;
  const double y = (*this)[b].value;
  if (y == 0.0) return constant(1.0);
  if (y == 0.5) return make(Op::SQRT, a);
  if (y != std::floor(y) || std::fabs(y) > kLargestWholePower) return -1;
  const Id power = whole_power(a, static_cast<int>(std::fabs(y)));
  return y > 0.0 ? power : make(Op::DIV, constant(1.0), power);
}

// What the operation is without computing anything, or -1.
Id Graph::simplified(Op op, Id a, Id b) {
  switch (op) {
    case Op::ADD:
      return is(b, 0.0) ? a : is(a, 0.0) ? b : -1;
    case Op::SUB:
      return is(b, 0.0) ? a : is(a, 0.0) ? make(Op::NEG, b) : -1;
    case Op::MUL:
      return is(b, 1.0) ? a : is(a, 1.0) ? b : is(a, -1.0) ? make(Op::NEG, b) : -1;
    case Op::DIV:
      return is(b, 1.0) ? a : -1;
    case Op::NEG:
      return (*this)[a].op == Op::NEG ? (*this)[a].operands[0] : -1;
    case Op::POW:
      return power(a, b);
    default:
      return -1;
  }
}

Id Graph::make(Op op, Id a, Id b, Id c) {
  const int n = arity(op);
  Node node;
  node.op = op;
  const Id operands[3] = {a, b, c};
  bool folds = true;
  for (int k = 0; k < n; ++k) {
    node.operands[k] = operands[k];
    node.rate |= (*this)[operands[k]].rate;
    folds &= (*this)[operands[k]].op == Op::CONST;
  }
  if (folds) {
    const auto value = [&](int k) { return k < n ? (*this)[operands[k]].value : 0.0; };
    return constant(evaluate(op, value(0), value(1), value(2)));
  }
  if (const Id simpler = simplified(op, a, b); simpler >= 0) return simpler;
  const bool commutes = op == Op::ADD || op == Op::MUL;
  if (commutes && node.operands[0] > node.operands[1]) std::swap(node.operands[0], node.operands[1]);
  const auto word = [](Id id) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)); };
  return find_or_add(node, {static_cast<std::uint64_t>(op) | word(node.operands[0]) << 8,
                            word(node.operands[1]) | word(node.operands[2]) << 32});
}

// d node / d parameter j; -1: 0. `by` has those of the operands.
Id Graph::derivative(Id of, const std::vector<std::vector<Id>>& by, int j) {
  const Node node = (*this)[of];  // a copy: making nodes moves them
  const Id a = node.operands[0], b = node.operands[1];
  const auto of_operand = [&](int k) {
    const auto& found = by[static_cast<std::size_t>(node.operands[k])];
    return found.empty() ? -1 : found[static_cast<std::size_t>(j)];
  };
  const int n = arity(node.op);
  const Id da = n > 0 ? of_operand(0) : -1, db = n > 1 ? of_operand(1) : -1, dc = n > 2 ? of_operand(2) : -1;
  const auto mul = [&](Id x, Id y) { return x < 0 || y < 0 ? -1 : make(Op::MUL, x, y); };
  const auto neg = [&](Id x) { return x < 0 ? -1 : make(Op::NEG, x); };
  const auto div = [&](Id x, Id y) { return x < 0 ? -1 : make(Op::DIV, x, y); };
  const auto add = [&](Id x, Id y) { return x < 0 ? y : y < 0 ? x : make(Op::ADD, x, y); };
  const auto zero = [&](Id x) { return x < 0 ? constant(0.0) : x; };
  const auto one_plus_square = [&](Op op, Id x) { return make(op, constant(1.0), make(Op::MUL, x, x)); };
  if (node.op == Op::PARAMETER) return node.index == j ? constant(1.0) : -1;
  if (da < 0 && db < 0 && dc < 0) return -1;
  switch (node.op) {
    case Op::ADD:
      return add(da, db);
    case Op::SUB:
      return add(da, neg(db));
    case Op::MUL:
      return add(mul(da, b), mul(a, db));
    case Op::DIV:
      return div(add(da, neg(mul(of, db))), b);
    case Op::POW: {
      const Id by_base = da < 0 ? -1 : mul(da, mul(b, make(Op::POW, a, make(Op::SUB, b, constant(1.0)))));
      if (db < 0) return by_base;
      // 0^b is 0 for all b > 0
      const Id at_zero = make(Op::EQ, a, constant(0.0));
      const Id log = make(Op::SELECT, at_zero, constant(0.0), make(Op::LOG, a));
      return add(by_base, mul(db, mul(of, log)));
    }
    case Op::ATAN2:
      return div(add(mul(b, da), neg(mul(a, db))), make(Op::ADD, make(Op::MUL, a, a), make(Op::MUL, b, b)));
    case Op::MIN:
      return make(Op::SELECT, make(Op::LE, a, b), zero(da), zero(db));
    case Op::MAX:
      return make(Op::SELECT, make(Op::LE, b, a), zero(da), zero(db));
    case Op::SELECT:
      return db < 0 && dc < 0 ? -1 : make(Op::SELECT, a, zero(db), zero(dc));
    case Op::NEG:
      return neg(da);
    case Op::ABS:
      return mul(make(Op::SIGN, a), da);
    case Op::SQRT:
      return div(mul(constant(0.5), da), of);
    case Op::EXP:
      return mul(of, da);
    case Op::LOG:
      return div(da, a);
    case Op::SIN:
      return mul(make(Op::COS, a), da);
    case Op::COS:
      return neg(mul(make(Op::SIN, a), da));
    case Op::TAN:
      return mul(one_plus_square(Op::ADD, of), da);
    case Op::ASIN:
      return div(da, make(Op::SQRT, one_plus_square(Op::SUB, a)));
    case Op::ACOS:
      return neg(div(da, make(Op::SQRT, one_plus_square(Op::SUB, a))));
    case Op::ATAN:
      return div(da, one_plus_square(Op::ADD, a));
    default:
      return -1;  // steps and comparisons
  }
}

std::vector<Id> Graph::derivatives(Id root, int num_parameters) {
  const Id count = root + 1;  // operands come first; nodes made on the way are derivatives
  std::vector<char> needed(static_cast<std::size_t>(count), 0);
  needed[static_cast<std::size_t>(root)] = 1;
  for (Id id = root; id >= 0; --id)
    if (needed[static_cast<std::size_t>(id)])
      for (int k = 0; k < arity((*this)[id].op); ++k)
        needed[static_cast<std::size_t>((*this)[id].operands[k])] = 1;
  std::vector<std::vector<Id>> by(static_cast<std::size_t>(count));
  for (Id id = 0; id < count; ++id) {
    if (!needed[static_cast<std::size_t>(id)] || ((*this)[id].rate & kByParameter) == 0) continue;
    std::vector<Id> found(static_cast<std::size_t>(num_parameters));
    for (int j = 0; j < num_parameters; ++j) found[static_cast<std::size_t>(j)] = derivative(id, by, j);
    by[static_cast<std::size_t>(id)] = std::move(found);
  }
  std::vector<Id> result = std::move(by[static_cast<std::size_t>(root)]);
  result.resize(static_cast<std::size_t>(num_parameters), -1);
  for (Id& id : result)
    if (id < 0) id = constant(0.0);
  return result;
}

}  // namespace graphopt::batch
