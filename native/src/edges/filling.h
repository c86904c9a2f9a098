// Columns of edges that follow from others: ids of vertices, identity matrices, keypoints' observations.
#pragma once

#include <cstdint>
#include <vector>

namespace graphopt::edges {

// The vertex in one slot: row i names table[index[i]], or first + index[i] without a table.
struct SlotIds {
  const std::int64_t* table = nullptr;
  std::int64_t first = 0;
  std::int64_t size = 0;  // index is below
  const char* index = nullptr;
  std::int64_t stride = 0;  // bytes from one index to the next
  bool is_wide = true;      // int64, else int32
};

// vertices (size, slots), information (size, dim, dim) identities, width (size,) ones; the last two may be
// nullptr. False: an index is outside of its table.
bool fill_edges(const std::vector<SlotIds>& slots, std::int64_t size, std::int64_t* vertices,
                double* information, std::int64_t dim, double* width);

// Keypoints (x, y doubles, somewhere an id) of images in the memory of another library.
struct KeypointLists {
  const std::int64_t* addresses = nullptr;
  const std::int64_t* counts = nullptr;
  std::int64_t images = 0;
  std::int64_t stride = 0;     // bytes from one keypoint to the next
  std::int64_t id_offset = 0;  // bytes to its id, -1 for none
};

// (images + 1,) where the observations of each image begin: its keypoints with an id.
std::vector<std::int64_t> count_observations(const KeypointLists& lists);

struct Observations {
  std::int64_t* image = nullptr;
  std::int64_t* point = nullptr;  // table[id], or id where there is no table or it has no such entry
  std::int64_t* number = nullptr;
  double* pixel = nullptr;  // (n, 2)
};

// Returns an id that the table (table_size entries, -1: none) does not have, -1 if there is none.
std::int64_t read_observations(const KeypointLists& lists, const std::vector<std::int64_t>& starts,
                               const std::int64_t* table, std::int64_t table_size, const Observations& out);

}  // namespace graphopt::edges
