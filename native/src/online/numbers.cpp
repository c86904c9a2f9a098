// Numbers of cliques: assembling fronts and factorizing them.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <numeric>

#include "linear/extend_add.h"
#include "linear/schedule.h"
#include "linear/supernodes.h"
#include "online/tree.h"

namespace graphopt::online {

// A pivot this small beside the diagonal of H is rounding: the direction has no information.
constexpr double kLeastPivot = 1e-13;
// What vertices that are determined all the same get at least, and at most, beside the diagonal of H.
constexpr double kLeastFloor = 1e-10, kMostFloor = 1e-6, kRaise = 100.0;
constexpr double kPointInformation = 1e-6;
// Nanoseconds of an update's fronts from which on others than the caller are worth waking: they sleep between
// updates.
constexpr double kWorthWaking = 1e6;

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
void Tree::assemble(const Job& job, Scratch& own, bool into_update) {
  const Front front = job.numbers->front();
  for (const std::int32_t e : job.shape->edges) {
    if (problem_.edge_kind[e] < 0) {
      assemble_prior(front, e, own, into_update);
    } else {
      assemble_edge(front, e, own, into_update);
    }
  }
}

void Tree::assemble_prior(const Front& front, std::int32_t e, Scratch& own, bool into_update) {
  const Prior& prior = *problem_.priors[problem_.edge_row[e]];
  const double* const H = problem_.H_of(e);
  const int m = prior.first.back();
  own.row.assign(static_cast<std::size_t>(m), -1);  // of the front, per scalar
  for (std::size_t s = 0; s < prior.vertices.size(); ++s)
    if (const int first = own.local[static_cast<std::size_t>(prior.vertices[s])]; first >= 0)
      std::iota(own.row.begin() + prior.first[s], own.row.begin() + prior.first[s + 1], first);
  for (int j = 0; j < m; ++j) {
    const int col = own.row[static_cast<std::size_t>(j)];
    if (col < 0 || (col >= front.num_pivots) != into_update) continue;
    for (int i = 0; i < m; ++i) {
      const int row = own.row[static_cast<std::size_t>(i)];
      if (row < col) continue;
      const double value = H[static_cast<std::int64_t>(j) * m + i];
      element(front, row, col) += value;
      if (row == col) own.gross[static_cast<std::size_t>(row)] += value;
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

void Tree::assemble_edge(const Front& front, std::int32_t e, Scratch& own, bool into_update) {
  const EdgeKind& kind = problem_.kind_of(e);
  const std::int32_t* const ends = problem_.vertices_of(e);
  const int n = front.num_pivots, arity = kind.arity();
  own.row.resize(std::max(own.row.size(), static_cast<std::size_t>(arity)));
  bool is_above = false;  // of the pivots
  for (int s = 0; s < arity; ++s) {
    const int row = problem_.is_free(ends[s]) ? own.local[static_cast<std::size_t>(ends[s])] : -1;
    own.row[static_cast<std::size_t>(s)] = row;
    is_above = is_above || row >= n;
  }
  if (into_update && !is_above) return;
  const double* block = problem_.H_of(e);
  for (int a = 0; a < arity; ++a) {
    const int da = kind.dims[static_cast<std::size_t>(a)], ra = own.row[static_cast<std::size_t>(a)];
    if (ra >= 0 && (ra >= n) == into_update) {
      add_own_block(front, ra, block, da);
      for (int j = 0; j < da; ++j) own.gross[static_cast<std::size_t>(ra + j)] += block[j * (j + 1) / 2 + j];
    }
    block += da * (da + 1) / 2;
    for (int b = a + 1; b < arity; ++b) {
      const int db = kind.dims[static_cast<std::size_t>(b)], rb = own.row[static_cast<std::size_t>(b)];
      if (ra >= 0 && rb >= 0 && (std::min(ra, rb) >= n) == into_update)
        add_joint_block(front, ra, rb, block, da, db);
      block += da * db;
    }
  }
}

// Rows of the front that a child's separator has, and runs of rows, of pivots or below, that follow each
// other in both. Whether they ascend.
bool Tree::find_rows(const Shape& child, int num_pivots, Scratch& own) {
  const auto size = static_cast<std::size_t>(child.num_below);
  own.row.resize(size + kStrip);
  own.position.resize(size + kStrip);
  own.runs.clear();
  int first = 0;
  bool ascends = true;
  for (const std::int32_t v : child.separator) {
    const int row = own.local[static_cast<std::size_t>(v)], dim = problem_.dim(v);
    ascends = ascends && (own.runs.empty() || row > own.runs.back().row);
    if (!own.runs.empty() && own.runs.back().row + own.runs.back().count == row && row != num_pivots) {
      own.runs.back().count += dim;
    } else {
      own.runs.push_back({row, first, dim});
    }
    for (int i = 0; i < dim; ++i) own.row[static_cast<std::size_t>(first + i)] = row + i;
    first += dim;
  }
  return ascends;
}

void Tree::add_children(const Job& job, Scratch& own, bool into_update) {
  const Front front = job.numbers->front();
  for (const Clique* child : job.children) {
    const int size = child->shape->num_below;
    const bool ascends = find_rows(*child->shape, front.num_pivots, own);
    if (!into_update)
      for (int i = 0; i < size; ++i)
        own.gross[static_cast<std::size_t>(own.row[static_cast<std::size_t>(i)])] +=
            child->numbers->gross[static_cast<std::size_t>(i)];
    if (ascends) {
      add_ordered(front, child->numbers->update(), size, own, into_update);
    } else {
      add_unordered(front, child->numbers->update(), size, own, into_update);
    }
  }
}

void Tree::add_ordered(const Front& front, const double* source, int size, Scratch& own, bool into_update) {
  const int n = front.num_pivots;
  const auto split =
      static_cast<int>(std::lower_bound(own.row.begin(), own.row.begin() + size, n) - own.row.begin());
  ChildColumns columns;
  columns.m = size;
  columns.first = into_update ? split : 0;
  columns.last = into_update ? size : split;
  if (columns.first == columns.last) return;
  const std::int64_t below = front.below - front.diagonal;
  for (int i = columns.first; i < size; ++i) {
    const int row = own.row[static_cast<std::size_t>(i)];
    own.position[static_cast<std::size_t>(i)] = into_update ? triangle_row(row - n)
                                                : row < n   ? triangle_row(row)
                                                            : below + rectangle_row(row - n, n);
  }
  columns.source = source;
  columns.row = own.row.data();
  columns.position = own.position.data();
  columns.target = into_update ? front.update : front.diagonal;
  columns.shift = into_update ? n : 0;
  add_child(columns);
}

// The same of a child whose rows have changed their order: block by block of rows that have kept it.
void Tree::add_unordered(const Front& front, const double* source, int size, Scratch& own, bool into_update) {
  const int n = front.num_pivots, shift = into_update ? n : 0;
  own.rows_of_front.resize(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const int row = own.row[static_cast<std::size_t>(i)];
    if (into_update && row < n) continue;  // no row of what is added
    own.rows_of_front[static_cast<std::size_t>(i)] = into_update ? front.update + triangle_row(row - n)
                                                     : row < n   ? front.diagonal + triangle_row(row)
                                                                 : front.below + rectangle_row(row - n, n);
  }
  for (const Run& later : own.runs)
    for (const Run& earlier : own.runs) {
      if (earlier.first > later.first) break;
      if ((std::min(later.row, earlier.row) >= n) == into_update)
        add_block(later, earlier, source, own, shift);
    }
}

namespace {

// target(i, j) += source(i, j) of rows that lie in one strip of either.
template <int kRows>
void add_rows(double* target, const double* source, int num_columns) {
  for (int j = 0; j < num_columns; ++j, target += kStrip, source += kStrip)
    for (int i = 0; i < kRows; ++i) target[i] += source[i];
}

using AddRows = void (*)(double*, const double*, int);
constexpr AddRows kAddRows[] = {nullptr,     add_rows<1>, add_rows<2>, add_rows<3>, add_rows<4>,
                                add_rows<5>, add_rows<6>, add_rows<7>, add_rows<8>};
static_assert(std::size(kAddRows) > kStrip);

}  // namespace

// The child's rows `later` and columns `earlier`, the lower triangle where they are the same.
void Tree::add_block(const Run& later, const Run& earlier, const double* source, const Scratch& own,
                     int shift) {
  const bool is_square = later.first == earlier.first, is_lower = later.row >= earlier.row;
  double* const* const rows = own.rows_of_front.data() + later.first;
  for (int i = 0, length; i < later.count; i += length) {
    const int row = later.first + i;
    const double* const from = source + triangle_row(row) + static_cast<std::int64_t>(earlier.first) * kStrip;
    if (!is_lower) {
      length = 1;
      const std::int64_t column = static_cast<std::int64_t>(later.row + i - shift) * kStrip;
      for (int j = 0; j < earlier.count; ++j)
        own.rows_of_front[static_cast<std::size_t>(earlier.first + j)][column] += from[j * kStrip];
      continue;
    }
    const int last = std::min(later.count - i, kStrip - row % kStrip);
    for (length = 1; length < last && rows[i + length] == rows[i] + length;) ++length;
    double* const to = rows[i] + static_cast<std::int64_t>(earlier.row - shift) * kStrip;
    kAddRows[length](to, from, is_square ? i + 1 : earlier.count);
    for (int r = 1; is_square && r < length; ++r)
      for (int j = i + 1; j <= i + r; ++j) to[j * kStrip + r] += from[j * kStrip + r];
  }
}

void Tree::clear_local(const Shape& shape, Scratch& own) {
  for (const std::int32_t v : shape.frontals) own.local[static_cast<std::size_t>(v)] = -1;
  for (const std::int32_t v : shape.separator) own.local[static_cast<std::size_t>(v)] = -1;
}

// The pivots' columns before the factorization; the job's floors are added to their diagonal.
void Tree::fill(Job& job, Scratch& own) {
  const int n = job.shape->num_pivots, m = job.shape->num_below;
  const Front front = job.numbers->front();
  own.gross.assign(static_cast<std::size_t>(n + m), 0.0);
  std::fill(front.diagonal, front.below + rectangle_size(m, n), 0.0);
  assemble(job, own, false);
  add_children(job, own, false);
  // what the separator gets is added after the factorization, but its diagonal counts already
  for (int i = 0; i < n; ++i) {
    const double gross = own.gross[static_cast<std::size_t>(i)];
    job.min_pivot[static_cast<std::size_t>(i)] = kLeastPivot * gross;
    element(front, i, i) += job.floors[static_cast<std::size_t>(i)] * gross;
  }
}

// Information falls with the cube of the length of a chain, until rounding hides it. A vertex that edges
// determine gets a little more than that, in all its scalars: an earlier pivot that is mostly rounding spoils
// the later ones. Steps are shorter by this share, where they end stays the same.
bool Tree::raise_floor(Job& job, int pivot) {
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    const int end = first + problem_.dim(v);
    if (pivot < end) {
      const double floor = job.floors[static_cast<std::size_t>(pivot)];
      if (floor >= kMostFloor) return false;
      const std::lock_guard<std::mutex> lock(determining_);
      if (!problem_.is_determined(v)) return false;
      std::fill(job.floors.begin() + first, job.floors.begin() + end,
                floor == 0.0 ? kLeastFloor : kRaise * floor);
      return true;
    }
    first = end;
  }
  return false;
}

// A point far from all that see it has hardly any information along the line of sight, and its step there, to
// twice as far or behind the camera, none that holds. Steps along pivots with less than kPointInformation of
// what the point's edges make up are shortened by as much; where they end stays the same.
void Tree::limit_points(const Job& job, const Scratch& own) {
  const Front front = job.numbers->front();
  int first = 0;
  for (const std::int32_t v : job.shape->frontals) {
    const int end = first + problem_.dim(v);
    if (problem_.is_point(v)) {
      const double most = *std::max_element(own.gross.begin() + first, own.gross.begin() + end);
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

// The front of a job, by the threads of a team: the first one assembles it, all of them factorize it. Whether
// that went well; else its failed_pivot says where it did not, or its error why.
bool Tree::compute(Job& job, Scratch& own, const Team& team, int* failed) {
  const Shape& shape = *job.shape;
  const bool is_first = team.thread == 0;
  const auto attempt = [&](const auto& part) {
    try {
      part();
    } catch (...) {
      job.error = std::current_exception();
    }
  };
  if (is_first) {
    int row = 0;
    for (const auto* vertices : {&shape.frontals, &shape.separator})
      for (const std::int32_t v : *vertices) {
        own.local[static_cast<std::size_t>(v)] = row;
        row += problem_.dim(v);
      }
  }
  bool is_done = false;
  for (;;) {
    if (is_first) attempt([&] { fill(job, own); });
    team.wait();
    if (job.error) break;
    const int pivot = factor_front(job.numbers->front(), job.min_pivot.data(), team, failed);
    is_done = pivot < 0;
    if (is_done) break;
    team.wait();
    if (is_first) {
      attempt([&] { job.numbers->is_raised = raise_floor(job, pivot); });
      job.goes_on = !job.error && job.numbers->is_raised;
      if (!job.goes_on) job.failed_pivot = pivot;
    }
    team.wait();
    if (!job.goes_on) break;
  }
  if (!is_first) return is_done;  // what is left is the first one's
  if (is_done) {
    attempt([&] {
      limit_points(job, own);
      assemble(job, own, true);
      add_children(job, own, true);
      job.numbers->gross.assign(own.gross.begin() + shape.num_pivots, own.gross.end());
    });
  }
  clear_local(shape, own);
  return is_done && !job.error;
}

void Tree::prepare(Job& job) const {
  const auto n = static_cast<std::size_t>(job.shape->num_pivots);
  job.numbers = std::make_shared<Numbers>(job.shape->num_pivots, job.shape->num_below);
  job.floors.assign(n, 0.0);
  job.min_pivot.resize(n);
  job.failed_pivot = -1;
  job.error = nullptr;
}

void Tree::require_scratch(int num_threads) {
  if (static_cast<int>(scratch_.size()) < num_threads) scratch_.resize(static_cast<std::size_t>(num_threads));
  for (Scratch& own : scratch_) own.local.resize(static_cast<std::size_t>(problem_.num_places()), -1);
}

// One after the other; returns the number of the first that fails.
std::int32_t Tree::compute_in_order(std::vector<Job>& jobs, std::vector<Clique>& results) {
  require_scratch(1);
  for (std::size_t k = 0; k < jobs.size(); ++k) {
    prepare(jobs[k]);
    int failed = -1;
    if (!compute(jobs[k], scratch_[0], Team{}, &failed)) return static_cast<std::int32_t>(k);
    results[k] = {jobs[k].shape, jobs[k].numbers};
  }
  return -1;
}

// Fronts that share no vertex that is eliminated are independent of each other; where a few of them are most
// of the work, several threads share each. Every number is computed by one thread, in the same order for any
// number of threads.
std::int32_t Tree::compute(std::vector<Job>& jobs, std::vector<Clique>& results) {
  const auto cost_of = [](const Job& job) {
    return kCoreModel.cost(job.shape->num_pivots, job.shape->num_below);
  };
  double cost = 0.0;
  for (const Job& job : jobs) cost += cost_of(job);
  if (cost < kWorthWaking) return compute_in_order(jobs, results);
  Forest forest;
  for (const Job& job : jobs) {
    forest.cost.push_back(cost_of(job));
    forest.parent.push_back(job.parent);
  }
  bool fails = false;
  ThreadPool& pool = ThreadPool::instance();
  for (bool has_run = false; !has_run;) {
    const Dealing dealing(forest, pool.num_threads());
    std::deque<Meeting> meetings = dealing.meetings();
    const int threads = dealing.num_threads;
    if (threads == 1) return compute_in_order(jobs, results);
    require_scratch(threads);
    for (Job& job : jobs) prepare(job);
    std::vector<char> failures(static_cast<std::size_t>(threads), 0);
    const auto work = [&](int thread) {
      const auto task = [&](std::int32_t k, const Team& team, int* failed) {
        Job& job = jobs[static_cast<std::size_t>(k)];
        const bool is_done = compute(job, scratch_[static_cast<std::size_t>(thread)], team, failed);
        if (is_done && team.thread == 0) results[static_cast<std::size_t>(k)] = {job.shape, job.numbers};
        return is_done ? -1 : 0;
      };
      failures[static_cast<std::size_t>(thread)] = dealing.work(meetings, thread, task) >= 0;
    };
    has_run = pool.run_team(threads, std::ref(work));  // else the pool was resized meanwhile
    fails = std::any_of(failures.begin(), failures.end(), [](char failed) { return failed != 0; });
  }
  // which one fails first must not depend on the threads
  return fails ? compute_in_order(jobs, results) : -1;
}

// Vertices that the direction moves along which this pivot has no information: L' x = 0 with x = 1 there.
std::vector<std::int32_t> Tree::unsupported(const Job& job) const {
  const int pivot = job.failed_pivot;
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

void Tree::throw_failure(const Job& job) const {
  if (job.error) std::rethrow_exception(job.error);
  throw Singular{unsupported(job)};
}

}  // namespace graphopt::online
