// Products of rows of two tables that are named by number: points in cameras' frames, and the like.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "parallel/shares.h"

namespace py = pybind11;

namespace {

using Table = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Rows = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

constexpr std::int64_t kRowsOfShare = 50'000;

void require_rows(const Rows& rows, std::int64_t count, std::int64_t num_rows, const char* name) {
  if (rows.ndim() != 1 || rows.shape(0) != count)
    throw py::value_error(std::string("row_products: ") + name + " must have length " +
                          std::to_string(count));
  const std::int64_t *begin = rows.data(), *end = begin + count;
  std::int64_t low = 0, high = -1;
  for (const std::int64_t* row = begin; row < end; ++row)
    low = std::min(low, *row), high = std::max(high, *row);
  if (low < 0 || high >= num_rows)
    throw py::index_error(std::string("row_products: ") + name + " has row " +
                          std::to_string(low < 0 ? low : high) + " of a table with " +
                          std::to_string(num_rows) + " rows");
}

// (o,) shift[i] + a[i] . b[j] with i = a_rows[o], j = b_rows[o].
Table row_products(const Table& a, const Rows& a_rows, const Table& b, const Rows& b_rows,
                   const Table& shift) {
  if (a.ndim() != 2 || b.ndim() != 2 || a.shape(1) != b.shape(1))
    throw py::value_error("row_products: a and b must be (k, c) and (m, c)");
  if (shift.ndim() != 1 || shift.shape(0) != a.shape(0))
    throw py::value_error("row_products: shift must have one number for each row of a");
  const std::int64_t count = a_rows.size(), columns = a.shape(1);
  require_rows(a_rows, count, a.shape(0), "a_rows");
  require_rows(b_rows, count, b.shape(0), "b_rows");
  Table result(count);
  double* const out = result.mutable_data();
  const double *left = a.data(), *right = b.data(), *first = shift.data();
  const std::int64_t *i = a_rows.data(), *j = b_rows.data();
  const py::gil_scoped_release unlocked;
  const int shares = graphopt::ThreadPool::instance().threads_for(count, kRowsOfShare);
  graphopt::for_each_share(count, shares, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      const double *x = left + i[o] * columns, *y = right + j[o] * columns;
      double sum = first[i[o]];
      for (std::int64_t c = 0; c < columns; ++c) sum += x[c] * y[c];
      out[o] = sum;
    }
  });
  return result;
}

}  // namespace

void bind_row_products(py::module_& m) {
  m.def("row_products", &row_products, py::arg("a"), py::arg("a_rows"), py::arg("b"), py::arg("b_rows"),
        py::arg("shift"),
        "(o,) shift[i] + a[i] . b[j] of tables (k, c) and (m, c), i = a_rows[o], j = b_rows[o].");
}
