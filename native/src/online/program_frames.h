// Registers that programs run on.
#pragma once

#include <memory>
#include <vector>

#include "vm/lanes.h"
#include "vm/linearizer.h"
#include "vm/program.h"

namespace graphopt::online {

// Registers of one thread, kept from call to call: filling in constants takes longer than a few edges.
struct Frames {
  struct Frame {
    vm::ProgramPtr program;
    vm::AlignedVector<double> memory;
    double* prepare(const vm::ProgramPtr& next, int lanes) {
      if (program != next) {
        memory.resize(static_cast<std::size_t>(next->num_registers) * static_cast<std::size_t>(lanes));
        vm::fill_constants(*next, memory.data(), lanes);
        program = next;
      }
      return memory.data();
    }
  };
  // A few programs take turns: each has a frame.
  static constexpr std::size_t kMost = 16;
  std::vector<std::unique_ptr<Frame>> wide, narrow;
  Frame kernel;
  static Frame& of(std::vector<std::unique_ptr<Frame>>& frames, const vm::ProgramPtr& program) {
    for (auto& frame : frames)
      if (frame->program == program) return *frame;
    if (frames.size() == kMost) frames.erase(frames.begin());
    frames.push_back(std::make_unique<Frame>());
    return *frames.back();
  }
};

inline Frames& program_frames() {
  thread_local Frames own;
  return own;
}

}  // namespace graphopt::online
