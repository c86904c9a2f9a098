// Instructions of an expression, in three stages by how often they run:
//
//   by_parameter  values of parameters alone: once per parameter set, with the sets as lanes
//   by_data       values of data alone: once per block of points
//   by_both       everything else: once per parameter set and block of points
//
// An operand is a vector (a column of the data, then registers; in by_parameter a parameter, then registers)
// or a scalar (constants, then what by_parameter has made).
#pragma once

#include <vector>

#include "batch/expression.h"

namespace graphopt::batch {

struct Operand {
  bool is_scalar = false;
  std::uint16_t index = 0;
};

struct Instruction {
  Op op = Op::CONST;
  std::uint8_t scalars = 0;  // bit k: operand k is a scalar
  std::uint16_t destination = 0;
  std::uint16_t operands[3] = {0, 0, 0};
};

struct Compiled {
  std::vector<Instruction> by_parameter, by_data, by_both;
  std::vector<double> constants;            // the first scalars
  std::vector<std::uint16_t> shared;        // vectors of by_parameter that become the scalars after them
  std::vector<Operand> outputs;             // of by_both: vectors or scalars
  int num_parameters = 0, num_columns = 0;  // vectors that are not registers, in by_parameter and elsewhere
  int num_parameter_registers = 0, num_registers = 0;

  int num_scalars() const { return static_cast<int>(constants.size() + shared.size()); }
};

// num_columns and num_parameters: vectors in front of the registers. Throws std::invalid_argument where an
// expression needs more than 65535 of something.
Compiled compile(const Graph& graph, const std::vector<Id>& outputs, int num_columns, int num_parameters);

}  // namespace graphopt::batch
