// A program of edges on lanes: loads what it reads of some edges, and runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "edges/chi2.h"
#include "vm/lanes.h"
#include "vm/transpose.h"

namespace graphopt::edges {

using vm::kLanes;

// Registers of one thread.
class Evaluator {
 public:
  Evaluator(const EdgePrograms& programs, const EdgeInputs& inputs) : programs_(programs), inputs_(inputs) {
    const auto prepare = [](const vm::Program& program, vm::AlignedVector<double>& frame) {
      frame.resize(static_cast<std::size_t>(program.num_registers) * kLanes);
      vm::fill_constants(program, frame.data(), vm::kLanes);
    };
    prepare(*programs.chi2, frame_);
    if (programs.kernel == nullptr) return;
    prepare(*programs.kernel, kernel_frame_);
    width_.resize(kLanes);
    robust_ = {programs.kernel, kernel_frame_.data(), width_.data()};
  }

  // The first output, rho, of `count` edges, one per lane. places: rows of the moving slot, null: as the
  // edges have them.
  const double* run(const std::uint32_t* edges, int count, const std::int32_t* places = nullptr) {
    std::uint32_t padded[kLanes];
    std::int32_t moved[kLanes];
    for (int l = 0; l < kLanes; ++l) padded[l] = edges[std::min(l, count - 1)];
    for (int l = 0; l < kLanes && places != nullptr; ++l) moved[l] = places[std::min(l, count - 1)];
    const std::int32_t* input = programs_.chi2->input_registers.data();
    load(inputs_.vertices, inputs_.vertex_rows, padded, input, places == nullptr ? nullptr : moved);
    load(inputs_.parameters, inputs_.parameter_rows, padded, input, nullptr);
    for (std::size_t k = 0; k < inputs_.data.size(); ++k) {
      const bool is_width = programs_.kernel != nullptr && k + 1 == inputs_.data.size();
      load(inputs_.data[k], padded, is_width, input);
    }
    vm::execute(*programs_.chi2, frame_.data(), robust_, count);
    return output(0);
  }

  // Another output of the last run, one per lane.
  const double* output(int k) const {
    const std::int32_t at = programs_.chi2->output_registers[static_cast<std::size_t>(k)];
    return frame_.data() + static_cast<std::size_t>(at) * kLanes;
  }

 private:
  void load(const std::vector<Table>& tables, const std::int32_t* rows, const std::uint32_t* edges,
            const std::int32_t*& input, const std::int32_t* moved) {
    const std::int64_t arity = static_cast<std::int64_t>(tables.size());
    for (std::int64_t slot = 0; slot < arity; ++slot) {
      const bool is_moving = moved != nullptr && slot == inputs_.moving;
      std::int32_t row[kLanes];
      for (int l = 0; l < kLanes; ++l) row[l] = is_moving ? moved[l] : rows[edges[l] * arity + slot];
      const Table& table = tables[static_cast<std::size_t>(slot)];
      vm::rows_to_lanes<vm::kLanes>(table.data, table.columns, row, input, frame_.data(), vm::kLanes);
      input += table.columns;
    }
  }

  void load(const Columns<double>& source, const std::uint32_t* edges, bool is_width,
            const std::int32_t*& input) {
    for (const int column : source.columns) {
      const std::int32_t target = is_width ? 0 : *input++;
      if (target < 0) continue;
      double* out = is_width ? width_.data() : frame_.data() + static_cast<std::size_t>(target) * kLanes;
      for (int l = 0; l < kLanes; ++l) {
        const std::int64_t row = source.row == nullptr ? edges[l] : source.row[edges[l]];
        out[l] = source.data[row * source.stride + column];
      }
    }
  }

  const EdgePrograms programs_;
  const EdgeInputs& inputs_;
  vm::AlignedVector<double> frame_, kernel_frame_, width_;
  vm::RobustContext robust_;
};

}  // namespace graphopt::edges
