// Edges that a Vulkan device evaluates: chi2, and H and b as sums by blocks of what each edge adds. Estimates
// are the host's, which moves them; factorization stays with linear_system.h.
#pragma once

#include "problem.h"

namespace graphopt::embed {

class DeviceEdges : public vm::Evaluation {
 public:
  virtual std::string name() const = 0;  // of the device
};

// device: "vulkan" (the best one), "vulkan:INDEX" or "vulkan:PART OF THE NAME". A device that the graph has
// opened before is used again. problem outlives the result. Throws Error where there is no such device, and
// where the types have no SPIR-V.
std::unique_ptr<DeviceEdges> make_device_edges(const std::string& device, bool validation, Graph& graph,
                                               Problem& problem);

}  // namespace graphopt::embed
