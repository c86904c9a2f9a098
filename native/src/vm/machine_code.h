// Programs whose bytecode was known when the module was built, as machine code.
//
// `python -m graphopt.codegen.machine_code` writes a C++ function of each program that
// native/machine_code.txt names: the same instructions in the same order, with values in processor registers
// instead of memory. A program finds its function by the fingerprint of its bytecode; the others are
// interpreted, with the same digits.
#pragma once

#include <cstdint>

#include "vm/program.h"

namespace graphopt::vm {

struct MachineCode {
  std::uint64_t fingerprint;
  RunProgram run;     // on frames of kLanes lanes
  RunProgram narrow;  // on frames of kVectorLanes lanes, which fit into the first cache
};

// Of everything that a program is made of: FNV-1a over the words of code, constants and registers.
std::uint64_t fingerprint(const Program& program);

// Null: interpret it.
const MachineCode* find_machine_code(const Program& program);

// Written by the build.
extern const MachineCode kMachineCode[];
extern const int kNumMachineCode;

}  // namespace graphopt::vm
