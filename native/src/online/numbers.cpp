// Numbers of cliques: assembling fronts and factorizing them.
#include <algorithm>
#include <cmath>

#include "linear/extend_add.h"
#include "online/tree.h"

namespace graphopt::online {

// A pivot this small beside the diagonal of H is rounding: the direction has no information.
constexpr double kLeastPivot = 1e-13;
// What vertices that are determined all the same get at least, and at most, beside the diagonal of H.
constexpr double kLeastFloor = 1e-10, kMostFloor = 1e-6, kRaise = 100.0;

void Tree::find_edges(Job& job) const {
  for (const std::int32_t v : job.shape->frontals) {
    for (std::int32_t entry = problem_.first_of[v]; entry >= 0; entry = problem_.entry_next[entry]) {
      const std::int32_t e = problem_.entry_edge[entry];
      if (!problem_.is_active(e)) continue;
      if (owner(e) == v) job.edges.push_back(e);
    }
  }
}

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
  const int n = front.num_pivots;
  for (const std::int32_t e : job.edges) {
    const double* block = problem_.H_of(e);
    const int arity = problem_.arity(e);
    const std::int32_t* const ends = problem_.vertices_of(e);
    if (problem_.edge_kind[e] < 0) {
      const Prior& prior = *problem_.priors[problem_.edge_row[e]];
      const int m = prior.first.back();
      for (int a = 0; a < arity; ++a)
        for (int b = 0; b < arity; ++b) {
          const int ra = local_[static_cast<std::size_t>(ends[a])],
                    rb = local_[static_cast<std::size_t>(ends[b])];
          if (ra < rb || rb < 0 || (rb >= n) != into_update) continue;
          for (int j = prior.first[static_cast<std::size_t>(b)];
               j < prior.first[static_cast<std::size_t>(b) + 1]; ++j)
            for (int i = prior.first[static_cast<std::size_t>(a)];
                 i < prior.first[static_cast<std::size_t>(a) + 1]; ++i) {
              const int row = ra + i - prior.first[static_cast<std::size_t>(a)],
                        col = rb + j - prior.first[static_cast<std::size_t>(b)];
              if (row < col) continue;
              const double value = block[static_cast<std::size_t>(j) * static_cast<std::size_t>(m) +
                                         static_cast<std::size_t>(i)];
              element(front, row, col) += value;
              if (row == col) gross_[static_cast<std::size_t>(row)] += value;
            }
        }
      continue;
    }
    const EdgeKind& kind = problem_.kind_of(e);
    for (int a = 0; a < arity; ++a) {
      const int da = kind.dims[static_cast<std::size_t>(a)];
      const int ra = problem_.is_free(ends[a]) ? local_[static_cast<std::size_t>(ends[a])] : -1;
      if (ra >= 0 && (ra >= n) == into_update) {
        for (int j = 0; j < da; ++j)
          for (int i = 0; i <= j; ++i) element(front, ra + j, ra + i) += block[j * (j + 1) / 2 + i];
        for (int j = 0; j < da; ++j) gross_[static_cast<std::size_t>(ra + j)] += block[j * (j + 1) / 2 + j];
      }
      block += da * (da + 1) / 2;
      for (int b = a + 1; b < arity; ++b) {
        const int db = kind.dims[static_cast<std::size_t>(b)];
        const int rb = problem_.is_free(ends[b]) ? local_[static_cast<std::size_t>(ends[b])] : -1;
        if (ra >= 0 && rb >= 0 && (std::min(ra, rb) >= n) == into_update) {
          for (int j = 0; j < db; ++j)
            for (int i = 0; i < da; ++i)
              element(front, std::max(ra + i, rb + j), std::min(ra + i, rb + j)) += block[j * da + i];
        }
        block += da * db;
      }
    }
  }
}

void Tree::add_children(const Job& job, bool into_update) {
  const Front front = job.numbers->front();
  const int n = front.num_pivots;
  for (const Clique* child : job.children) {
    const int size = child->shape->num_below;
    row_.resize(static_cast<std::size_t>(size) + kStrip);
    position_.resize(static_cast<std::size_t>(size) + kStrip);
    bool ascends = true;
    int k = 0;
    for (const std::int32_t v : child->shape->separator) {
      const int dim = problem_.dim(v);
      for (int i = 0; i < dim; ++i, ++k) {
        row_[static_cast<std::size_t>(k)] = local_[static_cast<std::size_t>(v)] + i;
        ascends =
            ascends && (k == 0 || row_[static_cast<std::size_t>(k)] > row_[static_cast<std::size_t>(k) - 1]);
      }
    }
    const Numbers& numbers = *child->numbers;
    if (!into_update)
      for (int i = 0; i < size; ++i)
        gross_[static_cast<std::size_t>(row_[static_cast<std::size_t>(i)])] +=
            numbers.gross[static_cast<std::size_t>(i)];
    if (ascends) {
      ChildColumns columns;
      columns.m = size;
      const auto split =
          static_cast<int>(std::lower_bound(row_.begin(), row_.begin() + size, n) - row_.begin());
      columns.first = into_update ? split : 0;
      columns.last = into_update ? size : split;
      if (columns.first == columns.last) continue;
      const std::int64_t below = front.below - front.diagonal;
      for (int i = columns.first; i < size; ++i) {
        const int row = row_[static_cast<std::size_t>(i)];
        position_[static_cast<std::size_t>(i)] = into_update ? triangle_row(row - n)
                                                 : row < n   ? triangle_row(row)
                                                             : below + rectangle_row(row - n, n);
      }
      columns.source = numbers.update();
      columns.row = row_.data();
      columns.position = position_.data();
      columns.target = into_update ? front.update : front.diagonal;
      columns.shift = into_update ? n : 0;
      add_child(columns);
      continue;
    }
    for (int i = 0; i < size; ++i) {
      const double* const values = numbers.update() + triangle_row(i);
      const int ri = row_[static_cast<std::size_t>(i)];
      for (int j = 0; j <= i; ++j) {
        const int rj = row_[static_cast<std::size_t>(j)], low = std::min(ri, rj);
        if ((low >= n) == into_update)
          element(front, std::max(ri, rj), low) += values[static_cast<std::int64_t>(j) * kStrip];
      }
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
// determine gets a little more than that; steps are shorter by this share, where they end stays the same.
bool Tree::raise_floor(const Job& job, int pivot, std::vector<double>& floors) const {
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    const int end = first + problem_.dim(v);
    if (pivot < end) {
      double& floor = floors[static_cast<std::size_t>(pivot)];
      if (floor >= kMostFloor || !problem_.is_determined(v)) return false;
      floor = floor == 0.0 ? kLeastFloor : kRaise * floor;
      return true;
    }
    first = end;
  }
  return false;
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
