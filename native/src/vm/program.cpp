#include "vm/program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "vm/lanes.h"
#include "vm/machine_code.h"
#include "vm/opcodes.h"

namespace graphopt::vm {
namespace {

[[noreturn]] void malformed(const std::string& what) { throw std::invalid_argument("Program: " + what); }

void check_register(std::int64_t r, int num_registers, int first) {
  if (r < first || r >= num_registers)
    malformed("register " + std::to_string(r) + " is outside " + std::to_string(first) + " .. " +
              std::to_string(num_registers - 1));
}

}  // namespace

Program::Program(std::vector<std::uint16_t> code_, std::vector<double> constants_,
                 std::vector<std::int32_t> input_registers_, std::vector<std::int32_t> output_registers_,
                 int num_registers_)
    : code(std::move(code_)),
      constants(std::move(constants_)),
      input_registers(std::move(input_registers_)),
      output_registers(std::move(output_registers_)),
      num_registers(num_registers_) {
  const int num_constants = static_cast<int>(constants.size());
  if (num_registers < num_constants || num_registers > 65536)
    malformed("num_registers is " + std::to_string(num_registers) + ", expected " +
              std::to_string(num_constants) + " (constants) to 65536");
  for (const std::int32_t r : input_registers)
    if (r != -1) check_register(r, num_registers, num_constants);
  for (const std::int32_t r : output_registers) check_register(r, num_registers, 0);
  std::size_t at = 0;
  const auto word = [&]() -> int {
    if (at >= code.size()) malformed("the code ends in the middle of an instruction or without END");
    return code[at++];
  };
  for (;;) {
    const int opcode = word();
    if (opcode == OP_END) break;
    if (opcode >= NUM_OPCODES) malformed("unknown opcode " + std::to_string(opcode));
    int num_destinations = kOpcodeShapes[opcode].num_destinations;
    int num_sources = kOpcodeShapes[opcode].num_sources;
    if (opcode == OP_BLOCK) {
      const int rows = word(), columns = word();
      if (rows < 1 || rows > kLargestBlockSide || columns < 1 || columns > kLargestBlockSide)
        malformed("a block of " + std::to_string(rows) + " x " + std::to_string(columns) + " sums, at most " +
                  std::to_string(kLargestBlockSide) + " x " + std::to_string(kLargestBlockSide));
      num_destinations = rows * columns;
      num_sources = (rows + columns) * word();
      num_sources += (rows + columns) * word();
    }
    for (int i = 0; i < num_destinations; ++i) check_register(word(), num_registers, num_constants);
    if (opcode == OP_SUM) {
      num_sources = 2 * word();
      num_sources += 2 * word();
      num_sources += word();
      num_sources += word();
    }
    for (int i = 0; i < num_sources; ++i) check_register(word(), num_registers, 0);
    uses_robust |= opcode == OP_ROBUST;
    ++num_instructions;
  }
  const char* const off = std::getenv("GRAPHOPT_WITHOUT");  // graphopt.switches
  if (off != nullptr && std::strstr(off, "machine_code") != nullptr) return;
  if (const MachineCode* const found = find_machine_code(*this)) {
    machine_code = found->run;
    narrow_code = found->narrow;
  }
}

void fill_constants(const Program& program, double* frame, int lanes) {
  for (std::size_t i = 0; i < program.constants.size(); ++i)
    std::fill_n(frame + i * static_cast<std::size_t>(lanes), lanes, program.constants[i]);
}

void run_rows(const Program& program, const double* inputs, std::int64_t n, double* outputs) {
  const std::size_t num_in = program.input_registers.size(), num_out = program.output_registers.size();
  AlignedVector<double> frame(static_cast<std::size_t>(program.num_registers) * kLanes);
  fill_constants(program, frame.data(), kLanes);
  for (std::int64_t first = 0; first < n; first += kLanes) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, n - first));
    const double* in = inputs + static_cast<std::size_t>(first) * num_in;
    for (std::size_t k = 0; k < num_in; ++k)
      if (const std::int32_t r = program.input_registers[k]; r >= 0)
        for (int l = 0; l < kLanes; ++l)
          frame[static_cast<std::size_t>(r * kLanes + l)] =
              in[static_cast<std::size_t>(std::min(l, lanes - 1)) * num_in + k];
    execute(program, frame.data(), {}, lanes);
    double* out = outputs + static_cast<std::size_t>(first) * num_out;
    for (std::size_t k = 0; k < num_out; ++k)
      for (int l = 0; l < lanes; ++l)
        out[static_cast<std::size_t>(l) * num_out + k] =
            frame[static_cast<std::size_t>(program.output_registers[k] * kLanes + l)];
  }
}

}  // namespace graphopt::vm
