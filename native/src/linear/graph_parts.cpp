#include "linear/graph_parts.h"

#include <metis.h>

#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "linear/errors.h"
#include "linear/ordering.h"

namespace graphopt {

static_assert(std::is_same_v<idx_t, std::int32_t>, "METIS with 32-bit indices");

std::vector<std::int32_t> graph_parts(std::vector<std::int32_t> begin, std::vector<std::int32_t> neighbor,
                                      std::vector<std::int32_t> vertex_weight,
                                      std::vector<std::int32_t> edge_weight, int num_parts) {
  idx_t n = static_cast<idx_t>(begin.size()) - 1, num_constraints = 1, cut = 0, count = num_parts;
  std::vector<std::int32_t> parts(n, 0);
  if (n == 0 || num_parts == 1) return parts;
  std::lock_guard<std::mutex> lock(metis_mutex());
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;
  options[METIS_OPTION_NUMBERING] = 0;
  const int status =
      METIS_PartGraphKway(&n, &num_constraints, begin.data(), neighbor.data(), vertex_weight.data(), nullptr,
                          edge_weight.data(), &count, nullptr, nullptr, options, &cut, parts.data());
  if (status == METIS_ERROR_MEMORY) throw std::bad_alloc();
  // GCOVR_EXCL_START - METIS refuses wrong input alone, and this is right
  if (status != METIS_OK)
    throw LinearStateError("METIS_PartGraphKway failed with status " + std::to_string(status) + ".");
  // GCOVR_EXCL_STOP
  return parts;
}

}  // namespace graphopt
