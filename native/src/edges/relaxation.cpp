#include "edges/relaxation.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "edges/shares.h"
#include "parallel/stopping.h"

namespace graphopt::edges {
namespace {

constexpr int kMostRows = 4;     // d + 1 in space
constexpr int kOperations = 16;  // of an eigenvalue problem, beside a simple one per edge
constexpr double kTiny = 1e-12;  // eigenvalues below this fraction of the largest count as this

// Row p of x, column k, of a vertex with these numbers.
double row_of(const double* numbers, int dim, int p, int k) {
  return p == 0 ? numbers[k] : numbers[dim + k * dim + p - 1];
}

template <int N>
double harmonic_mean(const double* matrix, int stride) {
  using Matrix = Eigen::Matrix<double, N, N>;
  Matrix block;
  bool is_diagonal = true;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      block(i, j) = matrix[i * stride + j];
      is_diagonal &= i == j || block(i, j) == 0.0;
    }
  Eigen::Matrix<double, N, 1> values = block.diagonal();
  if (!is_diagonal)
    values = Eigen::SelfAdjointEigenSolver<Matrix>(block, Eigen::EigenvaluesOnly).eigenvalues();
  const double largest = std::max(values.maxCoeff(), 0.0);
  if (!(largest > 0.0)) return 0.0;
  double sum = 0.0;
  for (int i = 0; i < N; ++i) sum += 1.0 / std::max(values(i) / largest, kTiny);
  return largest / (sum / N);
}

double harmonic_mean(const double* matrix, int stride, int size) {
  return size == 1   ? std::max(*matrix, 0.0)
         : size == 2 ? harmonic_mean<2>(matrix, stride)
                     : harmonic_mean<3>(matrix, stride);
}

// One edge: |x_j - C' x_i - target|^2 in the weights, of `columns` residuals with d sides.
struct Equation {
  int rows, columns;                    // of x_i and of x_j
  double c[kMostRows][kMostRows] = {};  // (rows, columns)
  double weight[kMostRows];
  double target[kMostRows][3] = {};

  Equation(const RelaxedEdges& edges, Unknowns unknowns, std::int64_t edge) {
    const int d = edges.dim;
    const bool all = unknowns == Unknowns::kAll, turns = all && !edges.to_points;
    rows = all ? d + 1 : 1;
    columns = turns ? d + 1 : 1;
    const double *m = edges.measurement + edge * (edges.to_points ? d : d + d * d),
                 *w = edges.weights + 2 * edge;
    weight[0] = w[0];
    std::fill(weight + 1, weight + kMostRows, w[1]);
    c[0][0] = 1.0;
    for (int i = 1; i < rows; ++i) {
      c[i][0] = m[i - 1];
      for (int j = 1; j < columns; ++j) c[i][j] = m[d + (i - 1) * d + j - 1];
    }
    if (all) return;
    const double* pose = edges.numbers[0] + edges.vertices[2 * edge] * (d + d * d);
    for (int k = 0; k < d; ++k)
      for (int i = 0; i < d; ++i) target[0][k] += pose[d + k * d + i] * m[i];
  }

  // target + C' x_i - x_j by what is known of them: `known` of the slots.
  void subtract_known(const RelaxedEdges& edges, std::int64_t edge, const bool (&known)[2]) {
    const int d = edges.dim;
    const std::int32_t* vertex = edges.vertices + 2 * edge;
    const double *first = edges.numbers[0] + vertex[0] * (d + d * d),
                 *second = edges.numbers[1] + vertex[1] * (edges.to_points ? d : d + d * d);
    for (int j = 0; j < columns; ++j)
      for (int k = 0; k < d; ++k) {
        for (int i = 0; known[0] && i < rows; ++i) target[j][k] += c[i][j] * row_of(first, d, i, k);
        if (known[1]) target[j][k] -= row_of(second, d, j, k);
      }
  }
};

// In space by the quaternion q that maximises tr(R(q)' M), the eigenvector of a symmetric matrix (Davenport).
void nearest_rotation(const double* m, int dim, double* out) {
  if (dim == 2) {
    const double angle = std::atan2(m[2] - m[1], m[0] + m[3]), c = std::cos(angle), s = std::sin(angle);
    out[0] = c, out[1] = -s, out[2] = s, out[3] = c;
    return;
  }
  Eigen::Matrix4d form;                                               // of q = (x, y, z, w)
  form << m[0] - m[4] - m[8], m[1] + m[3], m[2] + m[6], m[7] - m[5],  //
      m[1] + m[3], m[4] - m[0] - m[8], m[5] + m[7], m[2] - m[6],      //
      m[2] + m[6], m[5] + m[7], m[8] - m[0] - m[4], m[3] - m[1],      //
      m[7] - m[5], m[2] - m[6], m[3] - m[1], m[0] + m[4] + m[8];
  const Eigen::SelfAdjointEigenSolver<Eigen::Matrix4d> found(form);
  const Eigen::Vector4d q = found.eigenvectors().col(3);
  Eigen::Map<Eigen::Matrix<double, 3, 3, Eigen::RowMajor>> nearest(out);
  nearest = Eigen::Quaterniond(q(3), q(0), q(1), q(2)).normalized().toRotationMatrix();
}

std::int64_t place_of(const BlockPattern& pattern, std::int64_t row, std::int64_t col) {
  const auto begin = pattern.row_idx().begin();
  const auto found = std::lower_bound(begin + pattern.column_begin(static_cast<int>(col)),
                                      begin + pattern.column_end(static_cast<int>(col)), row);
  return pattern.value_offset(found - begin);
}

}  // namespace

void relaxed_weights(const double* information, int k, const std::int64_t* rows, std::int64_t size, int dim,
                     double* out) {
  for_each_share(size, num_shares(size * kOperations), [&](int, std::int64_t begin, std::int64_t end) {
    const double* before = nullptr;  // matrices of neighbours are often equal
    for (std::int64_t e = begin; e < end; ++e) {
      throw_if_stopped_at(e);
      const double* matrix = information + rows[e] * k * k;
      double* const own = out + 2 * e;
      if (before != nullptr && std::equal(matrix, matrix + k * k, before)) {
        own[0] = own[-2], own[1] = own[-1];
        continue;
      }
      own[0] = harmonic_mean(matrix, k, dim);
      own[1] = k == dim ? 0.0 : harmonic_mean(matrix + dim * (k + 1), k, k - dim);
      before = matrix;
    }
  });
}

void add_relaxed(const RelaxedEdges& edges, const std::int64_t* const (&blocks)[2], Unknowns unknowns,
                 const BlockPattern& pattern, double* values, double* b) {
  const int d = edges.dim;
  for (std::int64_t e = 0; e < edges.size; ++e) {
    throw_if_stopped_at(e);
    Equation one(edges, unknowns, e);
    const std::int64_t block[2] = {blocks[0][edges.vertices[2 * e]], blocks[1][edges.vertices[2 * e + 1]]};
    one.subtract_known(edges, e, {block[0] < 0, block[1] < 0});
    const int u = one.rows, v = one.columns;
    double weighted[kMostRows][kMostRows];  // C W
    for (int i = 0; i < u; ++i)
      for (int j = 0; j < v; ++j) weighted[i][j] = one.c[i][j] * one.weight[j];
    if (block[0] >= 0) {
      double* const h = values + pattern.value_offset(pattern.diagonal(static_cast<int>(block[0])));
      double* const right = b + pattern.offset(static_cast<int>(block[0])) * d;
      for (int i = 0; i < u; ++i)
        for (int j = 0; j < v; ++j) {
          for (int p = 0; p < u; ++p) h[p * u + i] += weighted[i][j] * one.c[p][j];
          for (int k = 0; k < d; ++k) right[i * d + k] -= weighted[i][j] * one.target[j][k];
        }
    }
    if (block[1] >= 0) {
      double* const h = values + pattern.value_offset(pattern.diagonal(static_cast<int>(block[1])));
      double* const right = b + pattern.offset(static_cast<int>(block[1])) * d;
      for (int j = 0; j < v; ++j) {
        h[j * v + j] += one.weight[j];
        for (int k = 0; k < d; ++k) right[j * d + k] += one.weight[j] * one.target[j][k];
      }
    }
    if (block[0] < 0 || block[1] < 0) continue;
    double* const h = values + place_of(pattern, std::min(block[0], block[1]), std::max(block[0], block[1]));
    for (int i = 0; i < u; ++i)
      for (int j = 0; j < v; ++j) {
        if (block[0] <= block[1]) h[j * u + i] -= weighted[i][j];
        if (block[0] >= block[1]) h[i * v + j] -= weighted[i][j];  // an edge may name a vertex twice
      }
  }
}

double relaxed_cost(const RelaxedEdges& edges) {
  double cost = 0.0;
  for (std::int64_t e = 0; e < edges.size; ++e) {
    throw_if_stopped_at(e);
    Equation one(edges, Unknowns::kAll, e);
    one.subtract_known(edges, e, {true, true});
    for (int j = 0; j < one.columns; ++j)
      for (int k = 0; k < edges.dim; ++k) cost += one.weight[j] * one.target[j][k] * one.target[j][k];
  }
  return cost;
}

void subtract_multipliers(const BlockPattern& pattern, int dim, const double* x, const double* b,
                          double* values, double* residual) {
  using Rows = Eigen::Map<Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
  using ConstRows = Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
  for (std::int64_t k = 0; k < pattern.dim() * dim; ++k) residual[k] = -b[k];
  for (int col = 0; col < pattern.num_blocks(); ++col)
    for (std::int64_t k = pattern.column_begin(col); k < pattern.column_end(col); ++k) {
      throw_if_stopped_at(k);
      const int row = pattern.row(k), height = pattern.block_dim(row), width = pattern.block_dim(col);
      const double* const h = values + pattern.value_offset(k);
      const std::int64_t above = pattern.offset(row) * dim, left = pattern.offset(col) * dim;
      for (int j = 0; j < width; ++j)
        for (int i = 0; i < height; ++i)
          for (int side = 0; side < dim; ++side) {
            const double entry = h[j * height + i];
            residual[above + i * dim + side] += entry * x[left + j * dim + side];
            if (row != col) residual[left + j * dim + side] += entry * x[above + i * dim + side];
          }
    }
  for (int block = 0; block < pattern.num_blocks(); ++block) {
    const int height = pattern.block_dim(block);
    if (height == 1) continue;  // a point
    const std::int64_t first = (pattern.offset(block) + 1) * dim;
    Rows left(residual + first, dim, dim);
    const ConstRows turn(x + first, dim, dim);
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, 3, 3> multiplier = left * turn.transpose();
    multiplier = (0.5 * (multiplier + multiplier.transpose())).eval();
    left.noalias() -= multiplier * turn;
    double* const h = values + pattern.value_offset(pattern.diagonal(block));
    for (int j = 0; j < dim; ++j)
      for (int i = 0; i < dim; ++i) h[(j + 1) * height + i + 1] -= multiplier(i, j);
  }
}

void nearest_rotations(const double* matrices, std::int64_t size, int dim, double* out) {
  const int numbers = dim * dim;
  for_each_share(size, num_shares(size * kOperations), [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      throw_if_stopped_at(n);
      nearest_rotation(matrices + n * numbers, dim, out + n * numbers);
    }
  });
}

}  // namespace graphopt::edges
