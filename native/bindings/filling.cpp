// Bindings of columns of edges that follow from others.
#include "edges/filling.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>

#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::edges;

namespace {

using namespace graphopt::bindings;

// (table (k,) int64, or (first, count)), index (m,) int64 or int32.
SlotIds slot_of(const py::tuple& given, py::ssize_t size) {
  require(given.size() == 2, "a slot is a table and an index");
  SlotIds slot;
  if (py::isinstance<py::tuple>(given[0])) {
    const auto range = given[0].cast<std::pair<std::int64_t, std::int64_t>>();
    slot.first = range.first;
    slot.size = range.second;
  } else {
    const auto table = exact<std::int64_t>(given[0], "table", 1);
    slot.table = table.data();
    slot.size = table.size();
  }
  require(py::isinstance<py::array>(given[1]), "index must be an array");
  const auto index = py::reinterpret_borrow<py::array>(given[1]);
  slot.is_wide = index.dtype().equal(py::dtype::of<std::int64_t>());
  require(slot.is_wide || index.dtype().equal(py::dtype::of<std::int32_t>()), "index must be int64 or int32");
  require(index.ndim() == 1 && index.shape(0) == size, "index must have one entry per edge");
  slot.index = static_cast<const char*>(index.data());
  slot.stride = index.strides(0);
  return slot;
}

void bound_fill_edges(const std::vector<py::tuple>& slots, const py::object& vertices) {
  auto ids = exact<std::int64_t>(vertices, "vertices", 2);
  require(ids.shape(1) == static_cast<py::ssize_t>(slots.size()), "vertices must have a column per slot");
  std::vector<SlotIds> found;
  for (const py::tuple& slot : slots) found.push_back(slot_of(slot, ids.shape(0)));
  std::int64_t* const out = ids.mutable_data();
  const std::int64_t size = ids.shape(0);
  bool fits = false;
  {
    const py::gil_scoped_release unlocked;
    fits = fill_edges(found, size, out);
  }
  require(fits, "an index is outside of its table");
}

py::tuple observations_of(const KeypointLists& lists, const std::vector<std::int64_t>& starts,
                          const ExactArray<std::int64_t>& ids) {
  py::array_t<std::int32_t> image(starts.back()), point(starts.back()), track_length(ids.size());
  py::array_t<double> pixel({starts.back(), std::int64_t{2}});
  const Observations out{image.mutable_data(), point.mutable_data(), pixel.mutable_data(),
                         track_length.mutable_data()};
  const std::int64_t* const known = ids.data();
  const std::int64_t num_known = ids.size();
  std::int64_t lost = kNoneLost;
  {
    const py::gil_scoped_release unlocked;
    lost = read_observations(lists, starts, known, num_known, out);
  }
  return py::make_tuple(image, point, pixel, copied(starts), track_length, lost);
}

// Nobody may change the keypoints meanwhile.
py::tuple bound_read_keypoints(const py::object& addresses, const py::object& counts, std::int64_t stride,
                               std::int64_t id_offset, const py::object& ids, const py::object& seen) {
  const auto from = exact<std::int64_t>(addresses, "addresses", 1);
  const auto lengths = exact<std::int64_t>(counts, "counts", 1);
  const auto known = exact<std::int64_t>(ids, "ids", 1);
  const auto guess = exact<std::int64_t>(seen, "seen", 1);
  require(from.size() == lengths.size() && from.size() == guess.size(),
          "addresses, counts and seen must have one entry per image");
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  require(from.size() < kMost && known.size() < kMost, "there are more images or points than int32 has");
  const KeypointLists lists{from.data(), lengths.data(), from.size(), stride, id_offset};
  std::vector<std::int64_t> starts(static_cast<std::size_t>(guess.size()) + 1, 0);
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const auto k = static_cast<py::ssize_t>(i) - 1;
    starts[i] = starts[i - 1] + std::clamp(guess.at(k), std::int64_t{0}, lengths.at(k));
  }
  py::tuple found = observations_of(lists, starts, known);
  if (found[5].cast<std::int64_t>() != kWrongStarts) return found;
  {
    const py::gil_scoped_release unlocked;
    starts = count_observations(lists);
  }
  return observations_of(lists, starts, known);
}

py::tuple bound_read_tracks(const py::object& track, const py::object& start, const py::object& image_ids,
                            const py::object& keypoint_start, const py::object& xy) {
  const auto elements = exact<std::int64_t>(track, "track", 2);
  const auto first = exact<std::int64_t>(start, "track_start", 1);
  const auto ids = exact<std::int64_t>(image_ids, "image_ids", 1);
  const auto keypoints = exact<std::int64_t>(keypoint_start, "keypoint_start", 1);
  const auto places = exact<double>(xy, "xy", 2);
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  const py::ssize_t size = elements.shape(0), points = first.size() - 1, images = ids.size();
  require(elements.shape(1) == 2 && places.shape(1) == 2 && points >= 0 && points < kMost && images < kMost &&
              first.at(0) == 0 && first.at(points) == size &&
              std::is_sorted(first.data(), first.data() + points + 1),
          "track_start is no list of tracks");
  require(keypoints.size() == images + 1 && keypoints.at(0) == 0 && keypoints.at(images) <= places.shape(0) &&
              std::is_sorted(keypoints.data(), keypoints.data() + images + 1),
          "keypoint_start is no list of images");
  graphopt::PlainArray<std::int32_t> image(size), point(size);
  graphopt::PlainArray<std::int64_t> counts(images);
  graphopt::PlainArray<double> pixel(2 * size);
  std::int64_t lost = -1;
  {
    const py::gil_scoped_release unlocked;
    lost = read_tracks(
        {elements.data(), first.data(), size, points, ids.data(), images, keypoints.data(), places.data()},
        {image.begin(), point.begin(), pixel.begin(), nullptr}, counts.begin());
  }
  return py::make_tuple(as_array(std::move(image)), as_array(std::move(point)), as_array(std::move(pixel)),
                        as_array(std::move(counts)), lost);
}

template <class Index>
std::int64_t bound_count_behind(const py::object& image_row, const py::object& point_row,
                                const py::object& planes, const py::object& points, double least) {
  const auto image = exact<Index>(image_row, "image_row", 1);
  const auto point = exact<Index>(point_row, "point_row", 1);
  const auto plane = exact<double>(planes, "planes", 2);
  const auto place = exact<double>(points, "points", 2);
  require(image.size() == point.size(), "image_row and point_row must have one entry per observation");
  require(plane.shape(1) == 4 && place.shape(1) == 3, "planes must be (images, 4), points (points, 3)");
  const ObservationRows<Index> rows{image.data(), point.data(), image.size(), plane.shape(0), place.shape(0)};
  std::int64_t behind = 0;
  {
    const py::gil_scoped_release unlocked;
    behind = count_behind(rows, plane.data(), place.data(), least);
  }
  require(behind >= 0, "an observation is of an image or a point that is not there");
  return behind;
}

std::int64_t count_behind_of_any(const py::array& image_row, const py::object& point_row,
                                 const py::object& planes, const py::object& points, double least) {
  const bool is_wide = image_row.dtype().equal(py::dtype::of<std::int64_t>());
  return (is_wide ? &bound_count_behind<std::int64_t>
                  : &bound_count_behind<std::int32_t>)(image_row, point_row, planes, points, least);
}

}  // namespace

void bind_filling(py::module_& m) {
  m.def("fill_edges", &bound_fill_edges, py::arg("slots"), py::arg("vertices"),
        "Write ids of vertices: table[index] per slot (or of a table (first, count): first + index).");
  m.def("read_keypoints", &bound_read_keypoints, py::arg("addresses"), py::arg("counts"), py::arg("stride"),
        py::arg("id_offset"), py::arg("ids"), py::arg("seen"),
        "Of keypoints with an id, probably seen[i] of image i: image and row of the id (int32), pixel; where "
        "those of each image start; how "
        "many each row has; and an id that is not among the ascending ones, -1 if there is none.");
  m.def("read_tracks", &bound_read_tracks, py::arg("track"), py::arg("track_start"), py::arg("image_ids"),
        py::arg("keypoint_start"), py::arg("xy"),
        "Of track elements (m, 2), image ids and keypoints: rows (m,) int32 of images and points, pixel (2 "
        "m,), "
        "how many each image has, and the first element that names something that is not there, else -1.");
  m.def(
      "count_behind", &count_behind_of_any, py::arg("image_row"), py::arg("point_row"), py::arg("planes"),
      py::arg("points"), py::arg("least"),
      "How many observations (int32 or int64 rows) have n x + d <= least, or NaN: planes (images, 4) n, d.");
}
