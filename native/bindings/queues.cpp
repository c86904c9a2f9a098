// Work queues of the block solver, as numpy arrays; see graphopt/vulkan/queues.py.
#include "vulkan/queues.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "exact_arrays.h"

namespace py = pybind11;
using namespace graphopt::vulkan;
using graphopt::bindings::as_array;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

py::tuple row_queue(std::int64_t num_rows, int num_classes, const Array<std::int32_t>& row,
                    const Array<std::int32_t>& col, const Array<std::uint8_t>& uses,
                    const Array<std::int64_t>& offset, const Array<std::int64_t>& scalar,
                    const Array<std::uint8_t>& dim_class) {
  RowQueueInput in;
  in.num_blocks = row.size();
  in.num_rows = num_rows;
  in.num_classes = num_classes;
  in.row = row.data();
  in.col = col.data();
  in.uses = uses.data();
  in.offset = offset.data();
  in.scalar = scalar.data();
  in.dim_class = dim_class.data();
  RowQueue out;
  {
    py::gil_scoped_release unlocked;
    out = build_row_queue(in);
  }
  return py::make_tuple(as_array(std::move(out.segment_ptr)), as_array(std::move(out.item_block)),
                        as_array(std::move(out.item_scalar)));
}

py::tuple landmark_lists(std::int64_t num_kept, const Array<std::int64_t>& col_ptr,
                         const Array<std::int32_t>& row_idx, const Array<std::int64_t>& offset) {
  const std::int64_t num_blocks = col_ptr.size() - 1;
  if (num_kept < 0 || num_kept > num_blocks || offset.size() < row_idx.size() ||
      col_ptr.at(num_blocks) != row_idx.size())
    throw py::value_error("landmark_lists: the arrays do not fit together");
  LandmarkLists out;
  {
    py::gil_scoped_release unlocked;
    out = build_landmark_lists({num_kept, num_blocks, col_ptr.data(), row_idx.data(), offset.data()});
  }
  return py::make_tuple(as_array(std::move(out.ptr)), as_array(std::move(out.landmark)),
                        as_array(std::move(out.block)), as_array(std::move(out.item_row)),
                        as_array(std::move(out.item_landmark)));
}

py::tuple schur_queue(int num_classes, const Array<std::int64_t>& landmark_items,
                      const Array<std::int32_t>& item_row, const Array<std::int64_t>& item_offset,
                      const Array<std::int64_t>& inverse_offset, const Array<std::uint8_t>& landmark_class,
                      const Array<std::int64_t>& kept_col_ptr, const Array<std::int32_t>& kept_row_idx) {
  SchurQueueInput in;
  in.num_kept = kept_col_ptr.size() - 1;
  in.num_landmarks = landmark_items.size() - 1;
  in.num_classes = num_classes;
  in.landmark_items = landmark_items.data();
  in.item_row = item_row.data();
  in.item_offset = item_offset.data();
  in.inverse_offset = inverse_offset.data();
  in.landmark_class = landmark_class.data();
  in.kept_col_ptr = kept_col_ptr.data();
  in.kept_row_idx = kept_row_idx.data();
  SchurQueue out;
  {
    py::gil_scoped_release unlocked;
    out = build_schur_queue(in);
  }
  return py::make_tuple(as_array(std::move(out.col_ptr)), as_array(std::move(out.row_idx)),
                        as_array(std::move(out.pair_ptr)), as_array(std::move(out.pair_left)),
                        as_array(std::move(out.pair_right)), as_array(std::move(out.pair_inverse)));
}

}  // namespace

void bind_queues(py::module_& m) {
  m.def("row_queue", &row_queue, py::arg("num_rows"), py::arg("num_classes"), py::arg("row"), py::arg("col"),
        py::arg("uses"), py::arg("offset"), py::arg("scalar"), py::arg("dim_class"));
  m.def("landmark_lists", &landmark_lists, py::arg("num_kept"), py::arg("col_ptr"), py::arg("row_idx"),
        py::arg("offset"),
        "Of the columns of a block layout from num_kept on: first entry (num_kept + 1,) int64 of each kept "
        "vertex, and uint32 landmark and offset of the block of each entry; row and landmark of each block.");
  m.def("schur_queue", &schur_queue, py::arg("num_classes"), py::arg("landmark_items"), py::arg("item_row"),
        py::arg("item_offset"), py::arg("inverse_offset"), py::arg("landmark_class"), py::arg("kept_col_ptr"),
        py::arg("kept_row_idx"));
}
