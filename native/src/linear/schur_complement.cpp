#include "linear/schur_complement.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "linear/errors.h"
#include "linear/schur_loops.h"

namespace graphopt {
namespace {

constexpr std::int64_t kMinParallelBlocks = 400;  // stored blocks; below, one thread does it all
constexpr std::int64_t kBlocksPerThread =
    800;  // about 50 us of reduction, ten times a barrier of many threads
constexpr std::int64_t kMostInCopy = 1 << 16;  // numbers of S that a share keeps a copy of: half of a cache
constexpr std::int64_t kPairsOfShare = 8192;   // products W V' that a share has at least
constexpr int kMostShares = 16;

}  // namespace

SchurComplement::SchurComplement(std::shared_ptr<const BlockPattern> pattern, int num_kept,
                                 bool explicit_form)
    : pattern_(std::move(pattern)), num_kept_(num_kept), explicit_(explicit_form) {
  check();
  kept_dim_ = pattern_->offset(num_kept_);
  inverse_offset_.push_back(0);
  diagonal_offset_.push_back(0);
  eliminated_cost_.push_back(0);
  for (int block = 0; block < pattern_->num_blocks(); ++block) {
    const int dim = pattern_->block_dim(block);
    if (block < num_kept_) {
      max_kept_dim_ = std::max(max_kept_dim_, dim);
      diagonal_offset_.push_back(diagonal_offset_.back() + dim * dim);
    } else {
      max_eliminated_dim_ = std::max(max_eliminated_dim_, dim);
      inverse_offset_.push_back(inverse_offset_.back() + dim * dim);
      eliminated_cost_.push_back(eliminated_cost_.back() + 1 + pattern_->column_end(block) -
                                 pattern_->column_begin(block));
    }
  }
  kernels_ = &choose_kernels();
  index_observations();
  if (explicit_) find_reduced_pattern();
  sort_columns_by_cost();
  if (explicit_) plan_shares();
}

SchurComplement::~SchurComplement() = default;

void SchurComplement::check() const {
  if (num_kept_ < 0 || num_kept_ > pattern_->num_blocks()) {
    throw LinearShapeError("SchurComplement: num_kept is " + std::to_string(num_kept_) +
                           ", the pattern has " + std::to_string(pattern_->num_blocks()) + " blocks.");
  }
  for (int col = num_kept_; col < pattern_->num_blocks(); ++col) {
    const std::int64_t diagonal = pattern_->diagonal(col);
    if (diagonal > pattern_->column_begin(col) && pattern_->row(diagonal - 1) >= num_kept_) {
      throw LinearShapeError("SchurComplement: the eliminated blocks " +
                             std::to_string(pattern_->row(diagonal - 1)) + " and " + std::to_string(col) +
                             " share an entry, so they are not independent. "
                             "Keep one of them (a smaller set to eliminate).");
    }
  }
}

void SchurComplement::index_observations() {
  observations_begin_.assign(num_kept_ + 1, 0);
  for (std::int64_t k = pattern_->col_ptr()[num_kept_]; k < pattern_->num_stored_blocks(); ++k) {
    if (pattern_->row(k) < num_kept_) ++observations_begin_[pattern_->row(k) + 1];
  }
  std::partial_sum(observations_begin_.begin(), observations_begin_.end(), observations_begin_.begin());
  observations_.resize(static_cast<std::size_t>(observations_begin_.back()));
  std::vector<std::int64_t> fill(observations_begin_.begin(), observations_begin_.end() - 1);
  for (int col = num_kept_; col < pattern_->num_blocks(); ++col) {
    throw_if_stopped_at(col);
    const std::int64_t begin = pattern_->column_begin(col);
    for (std::int64_t k = begin; k < pattern_->diagonal(col); ++k) {
      observations_[fill[pattern_->row(k)]++] =
          Observation{k, pattern_->value_offset(k), pattern_->value_offset(begin),
                      static_cast<std::int32_t>(k - begin), col};
    }
  }
}

void SchurComplement::find_reduced_pattern() {
  std::vector<std::int32_t> dims(pattern_->dims().begin(), pattern_->dims().begin() + num_kept_);
  std::vector<std::int64_t> col_ptr{0};
  std::vector<std::int32_t> row_idx, rows, seen_by(num_kept_, -1);
  for (int col = 0; col < num_kept_; ++col) {
    throw_if_stopped();
    rows.clear();
    const auto add = [&](int row) {
      if (seen_by[row] == col) return;
      seen_by[row] = col;
      rows.push_back(row);
    };
    for (std::int64_t k = pattern_->column_begin(col); k < pattern_->column_end(col); ++k)
      add(pattern_->row(k));
    for (std::int64_t o = observations_begin_[col]; o < observations_begin_[col + 1]; ++o) {
      const std::int64_t begin = pattern_->column_begin(observations_[o].eliminated);
      for (std::int64_t k = begin; k < observations_[o].stored_block; ++k) add(pattern_->row(k));
    }
    std::sort(rows.begin(), rows.end());
    row_idx.insert(row_idx.end(), rows.begin(), rows.end());
    col_ptr.push_back(static_cast<std::int64_t>(row_idx.size()));
  }
  reduced_pattern_ = std::make_shared<BlockPattern>(std::move(dims), std::move(col_ptr), std::move(row_idx));
}

void SchurComplement::sort_columns_by_cost() {
  std::vector<std::int64_t> cost(num_kept_, 0);
  kept_cost_.assign(num_kept_ + 1, 0);
  for (int col = 0; col < num_kept_; ++col) {
    throw_if_stopped_at(col);
    const std::int64_t own = pattern_->column_end(col) - pattern_->column_begin(col);
    kept_cost_[col + 1] = kept_cost_[col] + own;
    cost[col] = own;
    for (std::int64_t o = observations_begin_[col]; o < observations_begin_[col + 1]; ++o) {
      cost[col] += 2;
      if (explicit_)
        cost[col] += observations_[o].stored_block - pattern_->column_begin(observations_[o].eliminated);
    }
  }
  columns_by_cost_.resize(num_kept_);
  std::iota(columns_by_cost_.begin(), columns_by_cost_.end(), 0);
  std::stable_sort(columns_by_cost_.begin(), columns_by_cost_.end(),
                   [&](int a, int b) { return cost[a] > cost[b]; });
}

// Cut the eliminated blocks into shares, if all copies of S together are less to sum than there is to
// subtract.
void SchurComplement::plan_shares() {
  const int first = num_kept_, end = pattern_->num_blocks();
  auto plan = std::make_unique<Shares>();
  plan->number.assign(static_cast<std::size_t>(num_kept_), -1);
  for (int row = 0; row < num_kept_; ++row)
    if (observations_begin_[row] < observations_begin_[row + 1]) plan->number[row] = plan->num_seen++;
  if (static_cast<std::int64_t>(plan->num_seen) * plan->num_seen > kMostInCopy) return;
  plan->place.assign(static_cast<std::size_t>(plan->num_seen) * plan->num_seen, 0);
  for (int col = 0; col < num_kept_; ++col) {
    if (plan->number[col] < 0) continue;
    const int cols = pattern_->block_dim(col);
    plan->b_place.push_back(static_cast<std::int32_t>(plan->copy_size));
    plan->copy_size += padded(cols);
    for (std::int64_t k = reduced_pattern_->column_begin(col); k < reduced_pattern_->column_end(col); ++k) {
      const int row = reduced_pattern_->row(k);
      if (plan->number[row] < 0) continue;
      const int i = plan->number[row], j = plan->number[col];
      plan->place[i * plan->num_seen + j] = plan->place[j * plan->num_seen + i] =
          static_cast<std::int32_t>(plan->copy_size);
      plan->copy_size += padded(leading_dim(pattern_->block_dim(row)) * cols);
      if (plan->copy_size > kMostInCopy) return;
    }
  }
  std::vector<std::int64_t> pairs{0};  // cumulative
  std::int64_t longest = 0;
  for (int block = first; block < end; ++block) {
    const std::int64_t length = pattern_->diagonal(block) - pattern_->column_begin(block);
    longest = std::max(longest, length);
    pairs.push_back(pairs.back() + 2 + length * (length + 1) / 2);
  }
  const std::int64_t numbers = pairs.back() * max_kept_dim_ * max_kept_dim_;
  const std::int64_t most = std::min<std::int64_t>(kMostShares, numbers / (2 * plan->copy_size + 1));
  if (most < 1) return;
  plan->num = static_cast<int>(std::clamp<std::int64_t>(pairs.back() / kPairsOfShare, 1, most));
  for (int share = 0; share <= plan->num; ++share)
    plan->begin.push_back(first + share_begin(pairs, share, plan->num));
  plan->scratch_size =
      padded(max_eliminated_dim_ * max_eliminated_dim_) +
      padded(static_cast<int>(longest) * leading_dim(padded(max_kept_dim_)) * max_eliminated_dim_);
  plan->seen.assign(static_cast<std::size_t>(plan->num),
                    std::vector<Seen>(static_cast<std::size_t>(longest)));
  shares_ = std::move(plan);
}

void SchurComplement::subtract_shares() {
  Shares& shares = *shares_;
  shares.copies.require(shares.num * shares.copy_size);
  shares.scratch.require(shares.num * shares.scratch_size);
  failed_.assign(static_cast<std::size_t>(shares.num), std::numeric_limits<int>::max());
  ThreadPool& pool = ThreadPool::instance();
  const auto subtract = [&](int share) { failed_[share] = kernels_->subtract_share(*this, share); };
  pool.run_shares(shares.num, std::ref(subtract));
  const auto add = [&](int share) {
    std::int64_t begin, end;
    partition(num_kept_, share, shares.num, begin, end);
    kernels_->add_copies(*this, static_cast<int>(begin), static_cast<int>(end));
  };
  pool.run_shares(shares.num, std::ref(add));
}

void SchurComplement::require_formed(const char* caller) const {
  if (formed_) return;
  throw LinearStateError(std::string(caller) + ": call form() first and check that it returns True.");
}

std::int64_t SchurComplement::memory_bytes() const {
  return static_cast<std::int64_t>(
      (inverses_.size() + scaled_b_.size() + reduced_values_.size() + reduced_b_.size() +
       (shares_ == nullptr ? 0 : shares_->copies.size() + shares_->scratch.size())) *
          sizeof(double) +
      observations_.size() * sizeof(Observation));
}

int SchurComplement::worth_threads() const {
  const std::int64_t blocks = pattern_->num_stored_blocks();
  if (blocks < kMinParallelBlocks) return 1;
  return static_cast<int>(std::clamp<std::int64_t>(blocks / kBlocksPerThread, 2, ThreadPool::max_threads));
}

void SchurComplement::require_threads(int num_threads) {
  partial_.require(num_threads, kept_dim_);
  const std::size_t threads = static_cast<std::size_t>(num_threads);
  if (threads <= scratch_.size()) return;
  const int small = padded(max_eliminated_dim_ * std::max({max_eliminated_dim_, max_kept_dim_, 2}));
  const int kept = padded(max_kept_dim_);
  scratch_.resize(threads);
  for (Scratch& scratch : scratch_) {
    scratch.memory.require(small + kept * (kept + 1));
    scratch.small = scratch.memory.data();
    scratch.diagonal = scratch.small + small;
    scratch.b = scratch.diagonal + kept * kept;
  }
  slot_.resize(threads, std::vector<std::int32_t>(num_kept_));
}

bool SchurComplement::form(const double* values, const double* damping, const double* b) {
  std::lock_guard<CallMutex> lock(mutex_);
  formed_ = false;
  values_ = values;
  damping_ = damping;
  b_ = b;
  inverses_.resize(static_cast<std::size_t>(inverse_offset_.back()));
  scaled_b_.resize(static_cast<std::size_t>(pattern_->dim() - kept_dim_));
  reduced_b_.resize(static_cast<std::size_t>(kept_dim_));
  if (explicit_) reduced_values_.resize(static_cast<std::size_t>(reduced_pattern_->values_size()));
  if (shares_ != nullptr) {
    subtract_shares();
  } else {
    next_column_ = 0;
    const auto prepare = [&](int num_threads) {
      require_threads(num_threads);
      failed_.assign(num_threads, std::numeric_limits<int>::max());
    };
    run_team(worth_threads(), prepare, [&](const Team& team) {
      failed_[team.worker] = kernels_->invert(*this, team);
      team.wait();
      kernels_->reduce(*this, team);
    });
  }
  throw_if_stopped();
  const int failed = *std::min_element(failed_.begin(), failed_.end());
  formed_ = failed == std::numeric_limits<int>::max();
  failed_block_ = formed_ ? -1 : failed;
  return formed_;
}

void SchurComplement::reduce(const double* b) {
  std::lock_guard<CallMutex> lock(mutex_);
  require_formed("reduce");
  b_ = b;
  next_column_ = 0;
  run_team(
      worth_threads(), [&](int threads) { require_threads(threads); },
      [&](const Team& team) { kernels_->reduce_again(*this, team); });
  throw_if_stopped();
}

void SchurComplement::back_substitute(const double* x_kept, double* x) {
  std::lock_guard<CallMutex> lock(mutex_);
  require_formed("back_substitute");
  if (shares_ != nullptr) {
    kernels_->repeat(*this, x_kept);
    const auto share = [&](int one) { kernels_->back_substitute_share(*this, one, x_kept, x); };
    ThreadPool::instance().run_shares(shares_->num, std::ref(share));
    if (x_kept != x) std::copy_n(x_kept, kept_dim_, x);
    return;
  }
  run_team(
      worth_threads(), [&](int threads) { require_threads(threads); },
      [&](const Team& team) { kernels_->back_substitute(*this, x_kept, x, team); });
}

void SchurComplement::multiply(const double* x, double* y) {
  std::lock_guard<CallMutex> lock(mutex_);
  require_formed("multiply");
  run_team(
      worth_threads(), [&](int threads) { require_threads(threads); },
      [&](const Team& team) { multiply(x, y, team); });
}

void SchurComplement::multiply(const double* x, double* y, const Team& team) {
  kernels_->multiply(*this, x, y, team);
}

void SchurComplement::diagonal_blocks(double* out, bool of_kept) {
  std::lock_guard<CallMutex> lock(mutex_);
  require_formed("diagonal_blocks");
  next_column_ = 0;
  run_team(
      worth_threads(), [&](int threads) { require_threads(threads); },
      [&](const Team& team) { kernels_->diagonal_blocks(*this, of_kept, out, team); });
  throw_if_stopped();
}

void SchurComplement::kept_block(int block, double* out) const {
  const int dim = pattern_->block_dim(block);
  std::copy_n(values_ + pattern_->value_offset(pattern_->diagonal(block)), dim * dim, out);
  if (damping_ == nullptr) return;
  for (int i = 0; i < dim; ++i) out[i * dim + i] += damping_[pattern_->offset(block) + i];
}

const SchurComplement::Kernels& SchurComplement::choose_kernels() const {
  const auto all = [&](int begin, int end, int dim) {
    return std::all_of(pattern_->dims().begin() + begin, pattern_->dims().begin() + end,
                       [&](int d) { return d == dim; });
  };
  // only kept blocks beside eliminated ones count: velocities and biases see no landmarks
  const auto kept = [&](int dim) {
    for (int col = num_kept_; col < pattern_->num_blocks(); ++col) {
      for (std::int64_t k = pattern_->column_begin(col); k < pattern_->diagonal(col); ++k) {
        if (pattern_->block_dim(pattern_->row(k)) != dim) return false;
      }
    }
    return true;
  };
  const auto eliminated = [&](int dim) { return all(num_kept_, pattern_->num_blocks(), dim); };
  if (eliminated(3) && kept(9)) return Loops<9, 3>::kernels();
  if (eliminated(3) && kept(6)) return Loops<6, 3>::kernels();
  if (eliminated(3) && kept(7)) return Loops<7, 3>::kernels();
  if (eliminated(3) && kept(3)) return Loops<3, 3>::kernels();
  if (eliminated(2) && kept(3)) return Loops<3, 2>::kernels();
  if (eliminated(3)) return Loops<0, 3>::kernels();
  return Loops<0, 0>::kernels();
}

}  // namespace graphopt
