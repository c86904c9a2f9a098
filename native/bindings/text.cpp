// Text parsers and writers. Arrays that come back own the parser's memory (no copy); the GIL is released
// while parsing.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/definite.h"
#include "text/format.h"
#include "text/kernel_comments.h"
#include "text/table.h"
#include "text/tokenizer.h"

namespace py = pybind11;
namespace text = graphopt::text;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

// Hands a vector to numpy as (rows, columns), or (rows,) where columns is -1.
template <class T>
py::array_t<T> to_numpy(std::vector<T>&& data, int64_t rows, int64_t columns = -1) {
  auto owned = std::make_unique<std::vector<T>>(std::move(data));
  std::vector<T>* raw = owned.get();
  py::capsule base(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  if (columns < 0) return py::array_t<T>(std::vector<py::ssize_t>{rows}, raw->data(), base);
  return py::array_t<T>(std::vector<py::ssize_t>{rows, columns}, raw->data(), base);
}

// A view of any contiguous buffer of bytes, kept alive by the caller's argument.
class TextView {
 public:
  explicit TextView(const py::buffer& buffer) : info_(buffer.request()) {
    py::ssize_t stride = info_.itemsize;
    for (auto i = info_.ndim; i-- > 0; stride *= info_.shape[static_cast<size_t>(i)]) {
      if (info_.strides[static_cast<size_t>(i)] != stride && info_.size > 0)
        throw py::value_error("the buffer is not contiguous");
    }
  }
  std::string_view view() const {
    return {info_.size > 0 ? static_cast<const char*>(info_.ptr) : "",
            static_cast<size_t>(info_.size * info_.itemsize)};
  }

 private:
  py::buffer_info info_;
};

py::object to_python(const std::optional<text::ParseError>& error) {
  if (!error) return py::none();
  return py::make_tuple(error->line, error->message);
}

py::dict read_tagged_lines(
    const py::buffer& buffer,
    const std::unordered_map<std::string, std::tuple<int64_t, std::vector<int64_t>, bool, std::string>>&
        table) {
  std::unordered_map<std::string, text::TagRule> rules;
  for (const auto& [tag, rule] : table)
    rules[tag] = {std::get<0>(rule), std::get<1>(rule), std::get<2>(rule), std::get<3>(rule)};
  const TextView content(buffer);
  text::TaggedLines read;
  {
    py::gil_scoped_release release;
    read = text::read_tagged_lines(content.view(), rules);
  }
  py::list groups;
  for (text::Group& group : read.groups) {
    const auto rows = static_cast<int64_t>(group.lines.size());
    groups.append(py::make_tuple(group.tag, to_numpy(std::move(group.ids), rows, group.num_ids),
                                 to_numpy(std::move(group.values), rows, group.num_values),
                                 to_numpy(std::move(group.lines), rows)));
  }
  py::list unknown;
  for (const text::UnknownLine& line : read.unknown) {
    unknown.append(py::make_tuple(line.line, py::bytes(content.view().data() + line.begin, line.size)));
  }
  py::dict out;
  out["groups"] = groups;
  out["unknown"] = unknown;
  out["error"] = to_python(read.error);
  out["num_lines"] = read.num_lines;
  out["decimal_commas"] = py::make_tuple(read.num_decimal_commas, read.first_decimal_comma);
  return out;
}

py::tuple read_kernel_comments(const py::buffer& buffer) {
  const TextView content(buffer);
  const text::KernelComments read = text::read_kernel_comments(content.view());
  py::list comments;
  for (const text::KernelComment& comment : read.comments)
    comments.append(
        py::make_tuple(comment.line, comment.tag, comment.name, comment.width, py::cast(comment.edges)));
  return py::make_tuple(comments, to_python(read.error));
}

py::tuple read_table(const py::buffer& buffer, size_t offset, int64_t line, int64_t rows,
                     int64_t num_integers, int64_t num_values) {
  const TextView content(buffer);
  text::Table table;
  {
    py::gil_scoped_release release;
    table = text::read_table(content.view(), offset, line, rows, num_integers, num_values);
  }
  if (table.error)
    return py::make_tuple(py::none(), py::none(), table.offset, table.line, to_python(table.error));
  return py::make_tuple(to_numpy(std::move(table.integers), rows, num_integers),
                        to_numpy(std::move(table.values), rows, num_values), table.offset, table.line,
                        py::none());
}

py::tuple read_ragged_rows(const py::buffer& buffer, const std::string& separator) {
  if (separator.size() > 1) throw py::value_error("separator must be one character");
  const TextView content(buffer);
  text::RaggedRows read;
  {
    py::gil_scoped_release release;
    read = text::read_ragged_rows(content.view(), separator.empty() ? '\0' : separator[0]);
  }
  const auto num_values = static_cast<int64_t>(read.values.size());
  const auto rows = static_cast<int64_t>(read.lines.size());
  return py::make_tuple(to_numpy(std::move(read.values), num_values),
                        to_numpy(std::move(read.row_start), rows + 1), to_numpy(std::move(read.lines), rows),
                        to_python(read.error));
}

py::bytes format_rows(const std::string& tag, bool with_count, const Array<int64_t>& ids,
                      const Array<double>& values) {
  if (ids.ndim() != 2 || values.ndim() != 2 || ids.shape(0) != values.shape(0)) {
    throw py::value_error("ids and values must be matrices with the same number of rows");
  }
  std::string out;
  {
    py::gil_scoped_release release;
    out = text::format_rows(tag, with_count, ids.data(), ids.shape(1), values.data(), values.shape(1),
                            ids.shape(0));
  }
  return py::bytes(out);
}

py::bytes format_ragged_rows(const Array<double>& values, const Array<int64_t>& row_start, int digits) {
  if (digits < 0 || digits > 17) throw py::value_error("digits must be 0 to 17");
  if (values.ndim() != 1 || row_start.ndim() != 1 || row_start.shape(0) < 1)
    throw py::value_error("values and row_start must be vectors");
  const int64_t rows = row_start.shape(0) - 1;
  for (int64_t row = 0; row <= rows; ++row) {
    const int64_t start = row_start.at(row);
    if (start < (row == 0 ? 0 : row_start.at(row - 1)) || start > values.shape(0))
      throw py::value_error("row_start is not ascending");
  }
  std::string out;
  {
    py::gil_scoped_release release;
    out = text::format_ragged_rows(values.data(), row_start.data(), rows, digits);
  }
  return py::bytes(out);
}

py::array_t<bool> positive_definite(const Array<double>& matrices, double relative_tolerance) {
  if (matrices.ndim() != 3 || matrices.shape(1) != matrices.shape(2))
    throw py::value_error("expected (n, d, d)");
  py::array_t<bool> out(matrices.shape(0));
  std::vector<double> scratch(static_cast<size_t>(matrices.shape(1) * matrices.shape(1)));
  text::positive_definite(matrices.data(), matrices.shape(0), matrices.shape(1), relative_tolerance,
                          scratch.data(), out.mutable_data());
  return out;
}

}  // namespace

void bind_text(py::module_& m) {
  m.attr("ALL_IDS") = text::kAllIds;
  m.attr("COUNTED_IDS") = text::kCountedIds;
  m.def("read_tagged_lines", &read_tagged_lines, py::arg("text"), py::arg("rules"),
        "Groups lines `TAG ids numbers` by tag and size. rules: tag -> (num_ids, allowed numbers of values, "
        "layout).");
  m.def("read_kernel_comments", &read_kernel_comments, py::arg("text"),
        "Robust kernels in a .g2o text: ([(line, tag, name, width, [(first edge, last edge)])], error).");
  m.def("read_table", &read_table, py::arg("text"), py::arg("offset"), py::arg("line"), py::arg("rows"),
        py::arg("num_integers"), py::arg("num_values"),
        "Reads rows of integers and numbers: (integers, values, offset, line, error).");
  m.def("read_ragged_rows", &read_ragged_rows, py::arg("text"), py::arg("separator") = "",
        "Reads lines of any number of numbers: (values, row_start, lines, error).");
  m.def("format_rows", &format_rows, py::arg("tag"), py::arg("with_count"), py::arg("ids"), py::arg("values"),
        "Lines `tag [count] ids numbers` with the shortest decimals that read back to the same doubles.");
  m.def("format_ragged_rows", &format_ragged_rows, py::arg("values"), py::arg("row_start"),
        py::arg("digits") = 0,
        "Lines of any number of numbers, with so many significant digits, 0: the shortest.");
  m.def("positive_definite", &positive_definite, py::arg("matrices"), py::arg("relative_tolerance") = 1e-12,
        "(n, d, d) symmetric -> (n,) bool: Cholesky runs to the end.");
}
