// Small dense systems, for marginalization: a symmetric matrix whose diagonal is scaled to one, and its
// Cholesky factor.
//
//   size_i = sqrt(H_ii),   A = H / (size size'),   A = L L'
//
// A pivot of L that is small against one means a direction that nothing measures: None, and the caller looks
// at eigenvalues. What rounding alone has left of a diagonal stays small.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;

// Rows and columns first .. first + size of a matrix (ld x ld), scaled and factored.
class ScaledFactor {
 public:
  ScaledFactor(const double* h, std::int64_t ld, std::int64_t first, std::int64_t n, double least_pivot)
      : n_(n), size_(static_cast<std::size_t>(n)), lower_(static_cast<std::size_t>(n * n)) {
    double largest = 0.0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, h[(first + i) * (ld + 1)]);
    const double rounding = std::max(std::numeric_limits<double>::epsilon() * largest, 1e-300);
    for (std::int64_t i = 0; i < n; ++i) size_[i] = std::sqrt(std::max(h[(first + i) * (ld + 1)], rounding));
    for (std::int64_t i = 0; i < n; ++i) {
      double* const row = lower_.data() + i * n;
      for (std::int64_t j = 0; j <= i; ++j) {
        double sum = h[(first + i) * ld + first + j] / size_[j] / size_[i];
        for (std::int64_t k = 0; k < j; ++k) sum -= row[k] * lower_[j * n + k];
        row[j] = j < i ? sum / lower_[j * (n + 1)] : std::sqrt(sum);
      }
      if (!(row[i] > least_pivot)) return;  // also NaN
    }
    is_good_ = n > 0;
  }

  bool is_good() const { return is_good_; }

  // x := L^-1 (x / size)
  void forward(double* x) const {
    for (std::int64_t i = 0; i < n_; ++i) {
      double sum = x[i] / size_[i];
      for (std::int64_t k = 0; k < i; ++k) sum -= lower_[i * n_ + k] * x[k];
      x[i] = sum / lower_[i * (n_ + 1)];
    }
  }

  // x := (L'^-1 x) / size
  void backward(double* x) const {
    for (std::int64_t i = n_; i-- > 0;) {
      double sum = x[i];
      for (std::int64_t k = i + 1; k < n_; ++k) sum -= lower_[k * n_ + i] * x[k];
      x[i] = sum / lower_[i * (n_ + 1)];
    }
    for (std::int64_t i = 0; i < n_; ++i) x[i] /= size_[i];
  }

 private:
  std::int64_t n_;
  std::vector<double> size_, lower_;
  bool is_good_ = false;
};

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void require_system(const Numbers& h, const Numbers& b, const char* name) {
  if (h.ndim() == 2 && h.shape(0) == h.shape(1) && b.ndim() == 1 && b.shape(0) == h.shape(0)) return;
  throw py::value_error(std::string(name) + ": h must be (d, d) and b (d,)");
}

// H and b of the first `kept` scalars once the others are minimised over.
py::object eliminate_last(const Numbers& h, const Numbers& b, std::int64_t kept, double least_pivot) {
  require_system(h, b, "eliminate_last");
  const std::int64_t d = b.shape(0), gone = d - kept;
  if (kept < 0 || gone < 0)
    throw py::value_error("eliminate_last: kept is " + std::to_string(kept) + ", expected 0 .. " +
                          std::to_string(d));
  const ScaledFactor factor(h.data(), d, kept, gone, least_pivot);
  if (!factor.is_good()) return py::none();
  std::vector<double> half(static_cast<std::size_t>((kept + 1) * gone));  // L^-1 of the rows of H, and of b
  const auto row = [&](std::int64_t i) { return half.data() + i * gone; };
  for (std::int64_t i = 0; i <= kept; ++i) {
    std::copy_n(i < kept ? h.data() + i * d + kept : b.data() + kept, gone, row(i));
    factor.forward(row(i));
  }
  Numbers reduced({kept, kept}), reduced_b(kept);
  double* const out = reduced.mutable_data();
  for (std::int64_t i = 0; i < kept; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const double mean = 0.5 * (h.data()[i * d + j] + h.data()[j * d + i]);
      out[i * kept + j] = out[j * kept + i] = mean - dot(row(i), row(j), gone);
    }
    reduced_b.mutable_data()[i] = b.data()[i] - dot(row(i), row(kept), gone);
  }
  return py::make_tuple(reduced, reduced_b);
}

// x with H x = b.
py::object solve_scaled(const Numbers& h, const Numbers& b, double least_pivot) {
  require_system(h, b, "solve_scaled");
  const ScaledFactor factor(h.data(), b.shape(0), 0, b.shape(0), least_pivot);
  if (!factor.is_good()) return py::none();
  Numbers x(b.shape(0));
  std::copy_n(b.data(), b.shape(0), x.mutable_data());
  factor.forward(x.mutable_data());
  factor.backward(x.mutable_data());
  return x;
}

}  // namespace

void bind_dense(py::module_& m) {
  m.def("eliminate_last", &eliminate_last, py::arg("h"), py::arg("b"), py::arg("kept"),
        py::arg("least_pivot"),
        "(kept, kept) and (kept,): H (d, d) and b (d,) of the first scalars, the others minimised over; None "
        "where a pivot of their scaled block's factor is not above least_pivot. For small d.");
  m.def("solve_scaled", &solve_scaled, py::arg("h"), py::arg("b"), py::arg("least_pivot"),
        "(d,): x with H x = b; None as of eliminate_last. For small d.");
}
