// The table of a build without numpy: every program is interpreted.
#include "vm/machine_code.h"

namespace graphopt::vm {

const MachineCode kMachineCode[] = {{0, nullptr, nullptr}};
const int kNumMachineCode = 0;

}  // namespace graphopt::vm
