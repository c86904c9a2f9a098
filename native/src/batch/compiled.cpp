#include "batch/compiled.h"

#include <limits>

namespace graphopt::batch {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

// Registers of a stage; those of finished values are used again.
class Registers {
 public:
  explicit Registers(int first) : first_(first) {}
  int take() {
    if (!free_.empty()) {
      const int index = free_.back();
      free_.pop_back();
      return index;
    }
    return first_ + count_++;
  }
  void release(int index) { free_.push_back(index); }
  int count() const { return count_; }

 private:
  int first_, count_ = 0;
  std::vector<int> free_;
};

class Compiler {
 public:
  Compiler(const Graph& graph, const std::vector<Id>& outputs, int num_columns, int num_parameters)
      : graph_(graph), outputs_(outputs) {
    result_.num_columns = num_columns;
    result_.num_parameters = num_parameters;
  }

  Compiled compile() {
    const auto size = static_cast<std::size_t>(graph_.size());
    needed_.assign(size, false);
    last_use_.assign(size, -1);
    place_.assign(size, -1);
    scalar_.assign(size, -1);
    find_uses();
    number_scalars();
    Registers of_parameters(result_.num_parameters), of_data(result_.num_columns);
    emit(kByParameter, of_parameters, result_.by_parameter);
    emit(kByData, of_data, result_.by_data);
    emit(kByBoth, of_data, result_.by_both);
    for (std::size_t k = 0; k < shared_.size(); ++k) result_.shared.push_back(word(place_of(shared_[k])));
    for (const Id id : outputs_) result_.outputs.push_back(operand(id, kByBoth));
    result_.num_parameter_registers = of_parameters.count();
    result_.num_registers = of_data.count();
    return std::move(result_);
  }

 private:
  static std::uint16_t word(int value) {
    if (value > 65535)
      throw std::invalid_argument("the expression is too large: it needs 65536 registers or more");
    return static_cast<std::uint16_t>(value);
  }
  int& at(std::vector<int>& values, Id id) { return values[static_cast<std::size_t>(id)]; }

  // `user` is a node of rate `rate`, or kForever for outputs.
  void use(Id id, std::uint8_t rate, int user) {
    needed_[static_cast<std::size_t>(id)] = true;
    const std::uint8_t own = graph_[id].rate;
    int& last = at(last_use_, id);
    if (own != rate && (own == kByParameter || own == kByData)) user = kForever;  // outlives its stage
    if (own == kByParameter && rate == kByBoth) at(scalar_, id) = 0;
    if (user > last) last = user;
  }

  void find_uses() {
    for (const Id id : outputs_) use(id, kByBoth, kForever);
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      if (!needed_[static_cast<std::size_t>(id)]) continue;
      const Node& node = graph_[id];
      for (int k = 0; k < arity(node.op); ++k) use(node.operands[k], node.rate, id);
    }
  }

  void number_scalars() {
    for (Id id = 0; id < graph_.size(); ++id)
      if (needed_[static_cast<std::size_t>(id)] && graph_[id].op == Op::CONST) {
        at(scalar_, id) = word(static_cast<int>(result_.constants.size()));
        result_.constants.push_back(graph_[id].value);
      }
    for (Id id = 0; id < graph_.size(); ++id)
      if (graph_[id].rate == kByParameter && at(scalar_, id) == 0) {
        at(scalar_, id) = word(static_cast<int>(result_.constants.size() + shared_.size()));
        shared_.push_back(id);
      }
  }

  int place_of(Id id) {
    const Node& node = graph_[id];
    return node.op == Op::DATA || node.op == Op::PARAMETER ? node.index : at(place_, id);
  }

  Operand operand(Id id, std::uint8_t rate) {
    const std::uint8_t own = graph_[id].rate;
    const bool is_scalar = own == kConstant || (own == kByParameter && rate != kByParameter);
    return {is_scalar, word(is_scalar ? at(scalar_, id) : place_of(id))};
  }

  void emit(std::uint8_t rate, Registers& registers, std::vector<Instruction>& code) {
    for (Id id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (!needed_[static_cast<std::size_t>(id)] || node.rate != rate || arity(node.op) == 0) continue;
      Instruction instruction;
      instruction.op = node.op;
      for (int k = 0; k < arity(node.op); ++k) {
        const Operand source = operand(node.operands[k], rate);
        instruction.operands[k] = source.index;
        instruction.scalars |= static_cast<std::uint8_t>(source.is_scalar ? 1 << k : 0);
      }
      for (int k = 0; k < arity(node.op); ++k) {
        const Id source = node.operands[k];
        if (graph_[source].rate != rate || arity(graph_[source].op) == 0 || at(last_use_, source) != id)
          continue;
        registers.release(at(place_, source));  // the destination may be the same: lanes are read first
        at(last_use_, source) = -1;             // once
      }
      at(place_, id) = registers.take();
      instruction.destination = word(at(place_, id));
      code.push_back(instruction);
    }
  }

  const Graph& graph_;
  const std::vector<Id>& outputs_;
  std::vector<bool> needed_;
  std::vector<int> last_use_, place_, scalar_;  // by node
  std::vector<Id> shared_;
  Compiled result_;
};

}  // namespace

Compiled compile(const Graph& graph, const std::vector<Id>& outputs, int num_columns, int num_parameters) {
  return Compiler(graph, outputs, num_columns, num_parameters).compile();
}

}  // namespace graphopt::batch
