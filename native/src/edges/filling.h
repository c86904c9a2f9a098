// Columns of edges that follow from others: ids of vertices, observations of keypoints.
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

// vertices (size, slots). False: an index is outside of its table.
bool fill_edges(const std::vector<SlotIds>& slots, std::int64_t size, std::int64_t* vertices);

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
  std::int32_t* image = nullptr;
  std::int32_t* point = nullptr;         // row of its id
  double* pixel = nullptr;               // (n, 2)
  std::int32_t* track_length = nullptr;  // (num_ids,) observations of each point
};

constexpr std::int64_t kNoneLost = -1, kWrongStarts = -2;

// starts: as of `count_observations`, or a guess. ids: of the points, (num_ids,) ascending. Returns an id of
// a keypoint that is not there, kNoneLost if there is none, kWrongStarts if images have other numbers.
std::int64_t read_observations(const KeypointLists& lists, const std::vector<std::int64_t>& starts,
                               const std::int64_t* ids, std::int64_t num_ids, const Observations& out);

// Tracks of points: elements (size, 2) of image ids and numbers of keypoints, those of point p from start[p]
// on.
struct Tracks {
  const std::int64_t *elements = nullptr, *start = nullptr;
  std::int64_t size = 0, points = 0;
  const std::int64_t* image_ids = nullptr;
  std::int64_t images = 0;
  const std::int64_t* keypoint_start = nullptr;  // (images + 1) of the keypoints (x, y) of each image
  const double* xy = nullptr;
};

// out.track_length is not written; counts (images,) observations of each image. Returns the first element
// whose image or keypoint is not there, -1: all are.
std::int64_t read_tracks(const Tracks& tracks, const Observations& out, std::int64_t* counts);

// Observations of a model: rows of images and points, int32 or int64.
template <class Index>
struct ObservationRows {
  const Index* image = nullptr;
  const Index* point = nullptr;
  std::int64_t size = 0;
  std::int64_t images = 0;
  std::int64_t points = 0;
};

// How many observations have n x + d <= least, with n, d (images, 4) of their images and x (points, 3); NaN
// counts, too. -1: a row is outside.
template <class Index>
std::int64_t count_behind(const ObservationRows<Index>& rows, const double* planes, const double* points,
                          double least);

}  // namespace graphopt::edges
