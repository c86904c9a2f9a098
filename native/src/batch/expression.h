// Expressions of data and parameters, as a directed acyclic graph in which equal expressions are one node.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace graphopt::batch {

// name, number of operands. The order is that of `OPERATIONS` in graphopt/expressions/operations.py and of
// shaders/batch.glsl.
#define GRAPHOPT_BATCH_OPS(X) \
  X(CONST, 0)                 \
  X(DATA, 0)                  \
  X(PARAMETER, 0)             \
  X(ADD, 2)                   \
  X(SUB, 2)                   \
  X(MUL, 2)                   \
  X(DIV, 2)                   \
  X(POW, 2)                   \
  X(ATAN2, 2)                 \
  X(MIN, 2)                   \
  X(MAX, 2)                   \
  X(LT, 2)                    \
  X(LE, 2)                    \
  X(EQ, 2)                    \
  X(AND, 2)                   \
  X(OR, 2)                    \
  X(NEG, 1)                   \
  X(ABS, 1)                   \
  X(SIGN, 1)                  \
  X(FLOOR, 1)                 \
  X(NOT, 1)                   \
  X(SQRT, 1)                  \
  X(EXP, 1)                   \
  X(LOG, 1)                   \
  X(SIN, 1)                   \
  X(COS, 1)                   \
  X(TAN, 1)                   \
  X(ASIN, 1)                  \
  X(ACOS, 1)                  \
  X(ATAN, 1)                  \
  X(SELECT, 3)

enum class Op : std::uint8_t {
#define X(name, arity) name,
  GRAPHOPT_BATCH_OPS(X)
#undef X
};

int arity(Op op);

using Id = std::int32_t;  // of a node; operands have smaller ones

// What a value depends on.
enum Rate : std::uint8_t { kConstant = 0, kByParameter = 1, kByData = 2, kByBoth = 3 };

struct Node {
  Op op = Op::CONST;
  std::uint8_t rate = kConstant;
  Id operands[3] = {0, 0, 0};
  std::int32_t index = 0;  // DATA: column; PARAMETER: number
  double value = 0.0;      // CONST
};

// Nodes of one expression and of its derivatives. Constants are folded, and what multiplications by 1 and
// additions of 0 leave as it is; x * 0 stays, since it is NaN where x is infinite.
class Graph {
 public:
  Id constant(double value);
  Id data(int column);
  Id parameter(int number);
  Id make(Op op, Id a, Id b = 0, Id c = 0);

  const Node& operator[](Id id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Id size() const { return static_cast<Id>(nodes_.size()); }
  int num_parameters() const { return num_parameters_; }  // largest number of a parameter + 1
  int num_columns() const { return num_columns_; }

  // d root / d parameter j for all j, by forward mode: every node's derivatives from its operands'.
  std::vector<Id> derivatives(Id root, int num_parameters);

 private:
  struct Key {
    std::uint64_t a, b;
    bool operator==(const Key& other) const { return a == other.a && b == other.b; }
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.a * 0x9e3779b97f4a7c15u) ^
                                      (key.b + (key.a >> 29)) * 0xbf58476d1ce4e5b9u);
    }
  };
  Id find_or_add(const Node& node, Key key);
  Id simplified(Op op, Id a, Id b);
  Id power(Id a, Id b);
  Id whole_power(Id a, int n);
  Id derivative(Id of, const std::vector<std::vector<Id>>& by, int j);
  bool is(Id id, double value) const { return (*this)[id].op == Op::CONST && (*this)[id].value == value; }

  std::vector<Node> nodes_;
  std::unordered_map<Key, Id, Hash> table_;
  int num_parameters_ = 0, num_columns_ = 0;
};

// The value of an operation; what the vectors compute up to rounding.
double evaluate(Op op, double a, double b, double c);

// What is wrong with a text, and where.
class ParseError : public std::runtime_error {
 public:
  ParseError(std::size_t at, const std::string& what) : std::runtime_error(what), position(at) {}
  const std::size_t position;  // of the first character that does not fit
};

// Root of the expression that a text says. Data are called as in `names`, or x1, x2, ... (x_1 likewise) up to
// num_columns if it is empty; parameters p1, p2, ... Throws ParseError.
Id parse(const std::string& text, const std::unordered_map<std::string, int>& names, int num_columns,
         Graph& graph);

}  // namespace graphopt::batch
