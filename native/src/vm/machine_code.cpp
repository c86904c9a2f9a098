#include "vm/machine_code.h"

#include <algorithm>
#include <cstring>

namespace graphopt::vm {

std::uint64_t fingerprint(const Program& program) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t word) {
    hash ^= word;
    hash *= 0x100000001b3;
  };
  const auto add_all = [&](const auto& words) {
    add(words.size());
    for (const auto word : words) add(static_cast<std::uint64_t>(static_cast<std::int64_t>(word)));
  };
  add_all(program.code);
  add(program.constants.size());
  for (const double x : program.constants) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    add(bits);
  }
  add_all(program.input_registers);
  add_all(program.output_registers);
  add(static_cast<std::uint64_t>(program.num_registers));
  return hash;
}

const MachineCode* find_machine_code(const Program& program) {
  const std::uint64_t wanted = fingerprint(program);
  const MachineCode* const end = kMachineCode + kNumMachineCode;
  const MachineCode* const found =
      std::find_if(kMachineCode, end, [&](const MachineCode& one) { return one.fingerprint == wanted; });
  return found == end ? nullptr : found;
}

}  // namespace graphopt::vm
