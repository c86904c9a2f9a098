// Numbers of cliques: assembling fronts and factorizing them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "linear/extend_add.h"
#include "online/tree.h"

namespace graphopt::online {

// A pivot this small beside the diagonal of H is rounding: the direction has no information.
constexpr double kLeastPivot = 1e-13;
// What vertices that are determined all the same get at least, and at most, beside the diagonal of H.
constexpr double kLeastFloor = 1e-10, kMostFloor = 1e-6, kRaise = 100.0;
constexpr double kPointInformation = 1e-6;

namespace {

// Element (row, col) of a front, row >= col.
inline double& element(const Front& front, int row, int col) {
  const int n = front.num_pivots;
  if (col >= n) return front.update[triangle_row(row - n) + static_cast<std::int64_t>(col - n) * kStrip];
  if (row < n) return front.diagonal[triangle_row(row) + static_cast<std::int64_t>(col) * kStrip];
  return front.below[rectangle_row(row - n, n) + static_cast<std::int64_t>(col) * kStrip];
}

}  // namespace

// Blocks of the job's edges: those that touch pivots, or those of the separator alone.
void Tree::assemble(const Job& job, bool into_update) {
  const Front front = job.numbers->front();
  for (const std::int32_t e : job.shape->edges) {
    if (problem_.edge_kind[e] < 0) {
      assemble_prior(front, e, into_update);
    } else {
      assemble_edge(front, e, into_update);
    }
  }
}

void Tree::assemble_prior(const Front& front, std::int32_t e, bool into_update) {
  const Prior& prior = *problem_.priors[problem_.edge_row[e]];
  const double* const H = problem_.H_of(e);
  const int m = prior.first.back();
  row_.assign(static_cast<std::size_t>(m), -1);  // of the front, per scalar
  for (std::size_t s = 0; s < prior.vertices.size(); ++s)
    if (const int first = local_[static_cast<std::size_t>(prior.vertices[s])]; first >= 0)
      std::iota(row_.begin() + prior.first[s], row_.begin() + prior.first[s + 1], first);
  for (int j = 0; j < m; ++j) {
    const int col = row_[static_cast<std::size_t>(j)];
    if (col < 0 || (col >= front.num_pivots) != into_update) continue;
    for (int i = 0; i < m; ++i) {
      const int row = row_[static_cast<std::size_t>(i)];
      if (row < col) continue;
      const double value = H[static_cast<std::int64_t>(j) * m + i];
      element(front, row, col) += value;
      if (row == col) gross_[static_cast<std::size_t>(row)] += value;
    }
  }
}

namespace {

// The sum of a vertex' own block, its upper triangle by columns, into the front's lower triangle at `first`.
template <int kDim>
inline void add_own(const Front& front, int first, const double* block, int dim) {
  const int size = kDim > 0 ? kDim : dim;
  for (int j = 0; j < size; ++j) {
    double* const target = &element(front, first + j, first);
    for (int i = 0; i <= j; ++i) target[i * kStrip] += *block++;
  }
}

// The sum of the block of two vertices: its columns are the later rows of the front, or its rows are.
template <int kDim>
inline void add_joint(const Front& front, int ra, int rb, const double* block, int da, int db) {
  const int rows = kDim > 0 ? kDim : da, columns = kDim > 0 ? kDim : db;
  if (rb > ra) {
    for (int r = 0; r < columns; ++r) {
      double* const target = &element(front, rb + r, ra);
      for (int c = 0; c < rows; ++c) target[c * kStrip] += block[r * rows + c];
    }
  } else {
    for (int r = 0; r < rows; ++r) {
      double* const target = &element(front, ra + r, rb);
      for (int c = 0; c < columns; ++c) target[c * kStrip] += block[c * rows + r];
    }
  }
}

// Poses of the plane and of space, by far the most, have loops of known length.
inline void add_own_block(const Front& front, int first, const double* block, int dim) {
  if (dim == 3) return add_own<3>(front, first, block, dim);
  if (dim == 6) return add_own<6>(front, first, block, dim);
  add_own<0>(front, first, block, dim);
}

inline void add_joint_block(const Front& front, int ra, int rb, const double* block, int da, int db) {
  if (da == 3 && db == 3) return add_joint<3>(front, ra, rb, block, da, db);
  if (da == 6 && db == 6) return add_joint<6>(front, ra, rb, block, da, db);
  add_joint<0>(front, ra, rb, block, da, db);
}

}  // namespace

void Tree::assemble_edge(const Front& front, std::int32_t e, bool into_update) {
  const EdgeKind& kind = problem_.kind_of(e);
  const std::int32_t* const ends = problem_.vertices_of(e);
  const int n = front.num_pivots, arity = kind.arity();
  row_.resize(std::max(row_.size(), static_cast<std::size_t>(arity)));
  bool is_above = false;  // of the pivots
  for (int s = 0; s < arity; ++s) {
    const int row = problem_.is_free(ends[s]) ? local_[static_cast<std::size_t>(ends[s])] : -1;
    row_[static_cast<std::size_t>(s)] = row;
    is_above = is_above || row >= n;
  }
  if (into_update && !is_above) return;
  const double* block = problem_.H_of(e);
  for (int a = 0; a < arity; ++a) {
    const int da = kind.dims[static_cast<std::size_t>(a)], ra = row_[static_cast<std::size_t>(a)];
    if (ra >= 0 && (ra >= n) == into_update) {
      add_own_block(front, ra, block, da);
      for (int j = 0; j < da; ++j) gross_[static_cast<std::size_t>(ra + j)] += block[j * (j + 1) / 2 + j];
    }
    block += da * (da + 1) / 2;
    for (int b = a + 1; b < arity; ++b) {
      const int db = kind.dims[static_cast<std::size_t>(b)], rb = row_[static_cast<std::size_t>(b)];
      if (ra >= 0 && rb >= 0 && (std::min(ra, rb) >= n) == into_update)
        add_joint_block(front, ra, rb, block, da, db);
      block += da * db;
    }
  }
}

// Rows of the front that a child's separator has, and runs of rows, of pivots or below, that follow each
// other in both. Whether they ascend.
bool Tree::find_rows(const Shape& child, int num_pivots) {
  const auto size = static_cast<std::size_t>(child.num_below);
  row_.resize(size + kStrip);
  position_.resize(size + kStrip);
  runs_.clear();
  int first = 0;
  bool ascends = true;
  for (const std::int32_t v : child.separator) {
    const int row = local_[static_cast<std::size_t>(v)], dim = problem_.dim(v);
    ascends = ascends && (runs_.empty() || row > runs_.back().row);
    if (!runs_.empty() && runs_.back().row + runs_.back().count == row && row != num_pivots) {
      runs_.back().count += dim;
    } else {
      runs_.push_back({row, first, dim});
    }
    for (int i = 0; i < dim; ++i) row_[static_cast<std::size_t>(first + i)] = row + i;
    first += dim;
  }
  return ascends;
}

void Tree::add_children(const Job& job, bool into_update) {
  const Front front = job.numbers->front();
  for (const Clique* child : job.children) {
    const int size = child->shape->num_below;
    const bool ascends = find_rows(*child->shape, front.num_pivots);
    if (!into_update)
      for (int i = 0; i < size; ++i)
        gross_[static_cast<std::size_t>(row_[static_cast<std::size_t>(i)])] +=
            child->numbers->gross[static_cast<std::size_t>(i)];
    if (ascends) {
      add_ordered(front, child->numbers->update(), size, into_update);
    } else {
      add_unordered(front, child->numbers->update(), size, into_update);
    }
  }
}

void Tree::add_ordered(const Front& front, const double* source, int size, bool into_update) {
  const int n = front.num_pivots;
  const auto split = static_cast<int>(std::lower_bound(row_.begin(), row_.begin() + size, n) - row_.begin());
  ChildColumns columns;
  columns.m = size;
  columns.first = into_update ? split : 0;
  columns.last = into_update ? size : split;
  if (columns.first == columns.last) return;
  const std::int64_t below = front.below - front.diagonal;
  for (int i = columns.first; i < size; ++i) {
    const int row = row_[static_cast<std::size_t>(i)];
    position_[static_cast<std::size_t>(i)] = into_update ? triangle_row(row - n)
                                             : row < n   ? triangle_row(row)
                                                         : below + rectangle_row(row - n, n);
  }
  columns.source = source;
  columns.row = row_.data();
  columns.position = position_.data();
  columns.target = into_update ? front.update : front.diagonal;
  columns.shift = into_update ? n : 0;
  add_child(columns);
}

// The same of a child whose rows have changed their order: block by block of rows that have kept it.
void Tree::add_unordered(const Front& front, const double* source, int size, bool into_update) {
  const int n = front.num_pivots, shift = into_update ? n : 0;
  rows_of_front_.resize(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const int row = row_[static_cast<std::size_t>(i)];
    if (into_update && row < n) continue;  // no row of what is added
    rows_of_front_[static_cast<std::size_t>(i)] = into_update ? front.update + triangle_row(row - n)
                                                  : row < n   ? front.diagonal + triangle_row(row)
                                                              : front.below + rectangle_row(row - n, n);
  }
  for (const Run& later : runs_)
    for (const Run& earlier : runs_) {
      if (earlier.first > later.first) break;
      if ((std::min(later.row, earlier.row) >= n) == into_update) add_block(later, earlier, source, shift);
    }
}

// The child's rows `later` and columns `earlier`, the lower triangle where they are the same.
void Tree::add_block(const Run& later, const Run& earlier, const double* source, int shift) {
  const bool is_square = later.first == earlier.first;
  for (int i = 0; i < later.count; ++i) {
    const double* const from =
        source + triangle_row(later.first + i) + static_cast<std::int64_t>(earlier.first) * kStrip;
    const int count = is_square ? i + 1 : earlier.count;
    if (later.row >= earlier.row) {
      double* const to = rows_of_front_[static_cast<std::size_t>(later.first + i)] +
                         static_cast<std::int64_t>(earlier.row - shift) * kStrip;
      for (int j = 0; j < count; ++j) to[j * kStrip] += from[j * kStrip];
    } else {
      const std::int64_t column = static_cast<std::int64_t>(later.row + i - shift) * kStrip;
      for (int j = 0; j < count; ++j)
        rows_of_front_[static_cast<std::size_t>(earlier.first + j)][column] += from[j * kStrip];
    }
  }
}

void Tree::clear_local(const Shape& shape) {
  for (const std::int32_t v : shape.frontals) local_[static_cast<std::size_t>(v)] = -1;
  for (const std::int32_t v : shape.separator) local_[static_cast<std::size_t>(v)] = -1;
}

// The pivots' columns before the factorization; `floors` is added to their diagonal.
void Tree::fill(const Job& job, const std::vector<double>& floors) {
  const int n = job.shape->num_pivots, m = job.shape->num_below;
  const Front front = job.numbers->front();
  gross_.assign(static_cast<std::size_t>(n + m), 0.0);
  std::fill(front.diagonal, front.below + rectangle_size(m, n), 0.0);
  assemble(job, false);
  add_children(job, false);
  // what the separator gets is added after the factorization, but its diagonal counts already
  min_pivot_.resize(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const double gross = gross_[static_cast<std::size_t>(i)];
    min_pivot_[static_cast<std::size_t>(i)] = kLeastPivot * gross;
    element(front, i, i) += floors[static_cast<std::size_t>(i)] * gross;
  }
}

// Information falls with the cube of the length of a chain, until rounding hides it. A vertex that edges
// determine gets a little more than that, in all its scalars: an earlier pivot that is mostly rounding spoils
// the later ones. Steps are shorter by this share, where they end stays the same.
bool Tree::raise_floor(const Job& job, int pivot, std::vector<double>& floors) const {
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    const int end = first + problem_.dim(v);
    if (pivot < end) {
      const double floor = floors[static_cast<std::size_t>(pivot)];
      if (floor >= kMostFloor || !problem_.is_determined(v)) return false;
      std::fill(floors.begin() + first, floors.begin() + end, floor == 0.0 ? kLeastFloor : kRaise * floor);
      return true;
    }
    first = end;
  }
  return false;
}

// A point far from all that see it has hardly any information along the line of sight, and its step there, to
// twice as far or behind the camera, none that holds. Steps along pivots with less than kPointInformation of
// what the point's edges make up are shortened by as much; where they end stays the same.
void Tree::limit_points(const Job& job) {
  const Front front = job.numbers->front();
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    const int end = first + problem_.dim(v);
    if (problem_.is_point(v)) {
      const double most = *std::max_element(gross_.begin() + first, gross_.begin() + end);
      for (int i = first; i < end; ++i) {
        const double inverse = element(front, i, i);
        const double share = 1.0 / (kPointInformation * most * inverse * inverse);
        if (!(share < 1.0)) continue;
        job.numbers->share.resize(static_cast<std::size_t>(front.num_pivots), 1.0);
        job.numbers->share[static_cast<std::size_t>(i)] = share;
      }
    }
    first = end;
  }
}

void Tree::compute(Job& job) {
  const Shape& shape = *job.shape;
  const int n = shape.num_pivots, m = shape.num_below;
  job.numbers = std::make_shared<Numbers>(n, m);
  int row = 0;
  for (const auto* vertices : {&shape.frontals, &shape.separator})
    for (const std::int32_t v : *vertices) {
      local_[static_cast<std::size_t>(v)] = row;
      row += problem_.dim(v);
    }
  std::vector<double> floors(static_cast<std::size_t>(n), 0.0);
  for (;;) {
    fill(job, floors);
    int failed = -1;
    const int pivot = factor_front(job.numbers->front(), min_pivot_.data(), Team{}, &failed);
    if (pivot < 0) break;
    job.numbers->is_raised = raise_floor(job, pivot, floors);
    if (job.numbers->is_raised) continue;
    clear_local(shape);
    throw Singular{unsupported(job, pivot)};
  }
  limit_points(job);
  assemble(job, true);
  add_children(job, true);
  job.numbers->gross.assign(gross_.begin() + n, gross_.end());
  clear_local(shape);
}

// Vertices that the direction moves along which this pivot has no information: L' x = 0 with x = 1 there.
std::vector<std::int32_t> Tree::unsupported(const Job& job, int pivot) const {
  const Front front = job.numbers->front();
  std::vector<double> x(static_cast<std::size_t>(problem_.pending.size()), 0.0),
      own(static_cast<std::size_t>(pivot) + 1, 0.0);
  const auto lower = [&](int r, int c) {
    return front.diagonal[triangle_row(r) + static_cast<std::int64_t>(c) * kStrip];
  };
  own[static_cast<std::size_t>(pivot)] = 1.0;
  for (int c = pivot; c-- > 0;) {
    double sum = 0.0;
    for (int r = c + 1; r <= pivot; ++r) sum += lower(r, c) * own[static_cast<std::size_t>(r)];
    own[static_cast<std::size_t>(c)] = -sum * lower(c, c);
  }
  std::vector<std::int32_t> found;
  const auto take = [&](std::int32_t v, const double* values) {
    bool moves = false;
    for (int i = 0; i < problem_.dim(v); ++i) {
      x[static_cast<std::size_t>(problem_.offset[v] + i)] = values[i];
      moves = moves || std::abs(values[i]) > 1e-6;
    }
    if (moves) found.push_back(v);
  };
  own.resize(static_cast<std::size_t>(front.num_pivots), 0.0);
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    take(v, own.data() + first);
    first += problem_.dim(v);
  }
  // the subtrees below follow
  std::vector<const Clique*> stack(job.children.begin(), job.children.end());
  std::vector<double> z, y;
  while (!stack.empty() && found.size() < 10000) {
    const Clique& clique = *stack.back();
    stack.pop_back();
    z.assign(static_cast<std::size_t>(num_strips(clique.shape->num_below)) * kStrip + kStrip, 0.0);
    y.assign(static_cast<std::size_t>(clique.shape->num_pivots), 0.0);
    bool moves = false;
    int k = 0;
    for (const std::int32_t v : clique.shape->separator)
      for (int i = 0; i < problem_.dim(v); ++i, ++k) {
        z[static_cast<std::size_t>(k)] = x[static_cast<std::size_t>(problem_.offset[v] + i)];
        moves = moves || z[static_cast<std::size_t>(k)] != 0.0;
      }
    if (!moves) continue;
    vm::AlignedVector<double> aligned(z.begin(), z.end());
    backward_front(clique.numbers->front(), y.data(), aligned.data());
    int at = 0;
    for (const std::int32_t v : clique.shape->frontals) {
      take(v, y.data() + at);
      at += problem_.dim(v);
    }
    for (const std::int32_t child : children_[clique_of_[clique.shape->frontals[0]]])
      stack.push_back(&cliques_[child]);
  }
  return found;
}

}  // namespace graphopt::online
