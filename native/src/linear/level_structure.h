// Breadth-first levels of vertices that meet at places, from an outer vertex of each connected component.
// Reference: E. Cuthill, J. McKee, Reducing the bandwidth of sparse symmetric matrices, 1969.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt {

// Vertex vertex[k] is at place place[k]; two of them are neighbours if they share one. Per component of the
// vertices that are `taken`, by ascending first vertex: the sum of `dims` in each level. The first level is a
// vertex of the last level from the component's first one, with the fewest places there.
std::vector<std::vector<double>> level_widths(const std::vector<std::int64_t>& place,
                                              const std::vector<std::int64_t>& vertex,
                                              const std::vector<std::uint8_t>& taken,
                                              const std::vector<std::int32_t>& dims);

}  // namespace graphopt
