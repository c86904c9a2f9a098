// A compiled function: bytecode, constants, and the registers of inputs and outputs.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::vm {

struct RobustContext;

// Runs a program on at least the first num_lanes lanes of a frame.
using RunProgram = void (*)(double* frame, const RobustContext& robust, int num_lanes);

struct Program {
  std::vector<std::uint16_t> code;
  std::vector<double> constants;              // the first registers
  std::vector<std::int32_t> input_registers;  // -1: input not used
  std::vector<std::int32_t> output_registers;
  int num_registers = 0;
  int num_instructions = 0;  // filled by the constructor
  bool uses_robust = false;  // has a ROBUST instruction
  RunProgram machine_code = nullptr;
  RunProgram narrow_code = nullptr;  // the same on a frame of kVectorLanes lanes

  Program() = default;
  // Throws std::invalid_argument where the code is malformed: after this, running it touches its registers
  // only.
  Program(std::vector<std::uint16_t> code, std::vector<double> constants,
          std::vector<std::int32_t> input_registers, std::vector<std::int32_t> output_registers,
          int num_registers);

  int num_inputs() const { return static_cast<int>(input_registers.size()); }
  int num_outputs() const { return static_cast<int>(output_registers.size()); }
};

// The robust kernel that a ROBUST instruction runs.
struct RobustContext {
  const Program* kernel = nullptr;  // chi2, width -> rho, weight
  double* frame = nullptr;          // its registers, constants filled in
  const double* width = nullptr;    // [kLanes]
};

// Lanes that `execute` works on where so many are wanted.
int lanes_of(const Program& program, int num_lanes);

// Put the constants into a frame of num_registers * lanes doubles.
void fill_constants(const Program& program, double* frame, int lanes);

// Run the program on at least the first num_lanes lanes (of kLanes) of a frame with its constants and inputs.
void execute(const Program& program, double* frame, const RobustContext& robust, int num_lanes);

// Outputs (n, num_outputs) at inputs (n, num_inputs) of a program without a ROBUST instruction.
void run_rows(const Program& program, const double* inputs, std::int64_t n, double* outputs);

}  // namespace graphopt::vm
