// The part of Linearizer that runs in every iteration.
#include "vm/linearizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>

#include "parallel/stopping.h"
#include "parallel/thread_pool.h"
#include "vm/compensated.h"
#include "vm/transpose.h"

namespace graphopt::vm {
namespace {

int padded(int n) { return (n + kVectorLanes - 1) / kVectorLanes * kVectorLanes; }

typedef double Vec4 __attribute__((vector_size(32), may_alias, aligned(8)));
typedef double Vec2 __attribute__((vector_size(16), may_alias, aligned(8)));

// d += s or d = s. No masked stores at the end: the next edge often reads what this one wrote, and could not
// get it from the store buffer.
template <bool Add>
inline void put_row(double* d, const double* s, int length) {
  for (; length >= kVectorLanes; length -= kVectorLanes, d += kVectorLanes, s += kVectorLanes)
    store_unaligned(d, Add ? load_unaligned(d) + load_unaligned(s) : load_unaligned(s));
  if (kVectorLanes > 4 && (length & 4)) {
    const Vec4 v = *reinterpret_cast<const Vec4*>(s);
    *reinterpret_cast<Vec4*>(d) = Add ? *reinterpret_cast<Vec4*>(d) + v : v;
    d += 4, s += 4;
  }
  if (kVectorLanes > 2 && (length & 2)) {
    const Vec2 v = *reinterpret_cast<const Vec2*>(s);
    *reinterpret_cast<Vec2*>(d) = Add ? *reinterpret_cast<Vec2*>(d) + v : v;
    d += 2, s += 2;
  }
  if (length & 1) *d = Add ? *d + *s : *s;
}

// The same with the transpose: s is rows x columns, d columns x rows, both column-major.
template <bool Add>
inline void put_transposed(double* d, const double* s, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j, ++d) *d = Add ? *d + s[j * rows + i] : s[j * rows + i];
}

// Both triangles of a dense block += the upper triangle s, packed by columns.
inline void add_triangle(double* d, const double* s, int dim) {
  for (int j = 0; j < dim; ++j)
    for (int i = 0; i <= j; ++i, ++s) {
      d[j * dim + i] += *s;
      if (i != j) d[i * dim + j] += *s;
    }
}

template <bool Add>
inline void put(double* d, const double* s, const Piece& piece, std::int64_t code) {
  if (Destination::transposed(code))
    put_transposed<Add>(d, s, piece.rows, piece.columns);
  else
    put_row<Add>(d, s, piece.length());
}

// Edges between the one that is added and the one whose destinations are fetched into the cache.
constexpr int kPrefetchDistance = 3;
constexpr int kSoleDistance = 16;               // the same of blocks that are stored, in the order of memory
constexpr std::int64_t kWordsAtOnce = 1 << 15;  // of 64 numbers: 16 MB between two looks at the watch
constexpr double kChunkNanoseconds = 5e3;       // a usual chunk of edges, for looks at the watch

inline void prefetch(const double* p, int length) {
  for (int i = 0; i < length; i += 8) __builtin_prefetch(p + i, 1);
  __builtin_prefetch(p + length - 1, 1);
}

template <int Width>
inline bool all_the_same(const std::int32_t* rows) {
#if defined(__AVX512VL__)
  if constexpr (Width == 8)
    return _mm256_cmpneq_epi32_mask(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows)),
                                    _mm256_set1_epi32(rows[0])) == 0;
#endif
  return std::all_of(rows + 1, rows + Width, [&](std::int32_t row) { return row == rows[0]; });
}

// Sum of `count` numbers, vectors first, so that it takes as long for one lane as for a vector of them.
double sum_lanes(const double* x, int count) {
  Vec total{};
  int l = 0;
  for (; l + kVectorLanes <= count; l += kVectorLanes) total += load(x + l);
  double result = 0.0;
  for (int k = 0; k < kVectorLanes; ++k) result += total[k];
  for (; l < count; ++l) result += x[l];
  return result;
}

}  // namespace

double* Linearizer::Workspace::prepare(const ProgramPtr& next, const ProgramPtr& next_kernel) {
  const auto fill = [](const ProgramPtr& one, AlignedVector<double>& memory, ProgramPtr& filled) {
    if (filled == one) return;
    const std::size_t size = static_cast<std::size_t>(one->num_registers) * kLanes;
    if (memory.size() < size) memory.resize(size);
    fill_constants(*one, memory.data(), kLanes);
    filled = one;
  };
  fill(next, frame, program);
  if (next_kernel) fill(next_kernel, kernel_frame, kernel);
  return frame.data();
}

double* Linearizer::Workspace::prepare_narrow(const ProgramPtr& next) {
  if (narrow != next) {
    const std::size_t size = static_cast<std::size_t>(next->num_registers) * kVectorLanes;
    if (narrow_frame.size() < size) narrow_frame.resize(size);
    fill_constants(*next, narrow_frame.data(), kVectorLanes);
    narrow = next;
  }
  return narrow_frame.data();
}

Linearizer::Workspace& Linearizer::workspace(Use use) {
  thread_local Workspace workspaces[kNumUses];
  return workspaces[use];
}

const EdgeGroup& Linearizer::group(int index) const {
  if (index < 0 || index >= static_cast<int>(groups_.size()))
    throw std::invalid_argument("Linearizer: there is no edge group " + std::to_string(index));
  return *groups_[static_cast<std::size_t>(index)];
}

void Linearizer::require_prepared() const {
  if (!prepared_) throw std::logic_error("Linearizer: call prepare(values_size, b_size) first");
}

// task(t) for every partition t, on as many threads as there are now.
void Linearizer::for_each_partition(const std::function<void(int)>& task) {
  ThreadPool::instance().run_shares(num_partitions_, task);
}

// Inputs of the lanes of a chunk from `first` on: all, or a vector of them.
template <int Width>
void Linearizer::load_chunk(const EdgeGroup& g, const Program& program, std::int64_t chunk, int first,
                            double* frame) const {
  const std::int32_t* input = program.input_registers.data();
  const int lanes = Width < kLanes ? Width : lanes_of(program, g.num_lanes(chunk));
  const auto gather = [&](const double* base, int columns, const std::int32_t* rows) {
    if (all_the_same<Width>(rows))
      row_to_lanes<Width>(base + static_cast<std::int64_t>(rows[0]) * columns, columns, input, frame, lanes);
    else
      rows_to_lanes<Width>(base, columns, rows, input, frame, lanes);
    input += columns;
  };
  const std::int32_t* rows = g.vertex_rows.data() + chunk * g.arity() * kLanes + first;
  for (const int set : g.vertex_sets) {
    gather(vertex_sets_[set].estimate.data, vertex_sets_[set].estimate.columns, rows);
    rows += kLanes;
  }
  rows =
      g.parameter_rows.data() + chunk * static_cast<std::int64_t>(g.parameter_sets.size()) * kLanes + first;
  for (const int set : g.parameter_sets) {
    gather(parameter_sets_[set].data, parameter_sets_[set].columns, rows);
    rows += kLanes;
  }
  const double* data = g.data.data() + chunk * g.data_rows() * kLanes + first;
  for (int k = 0; k < g.measurement_dim + g.information_dim; ++k, ++input, data += kLanes) {
    if (*input < 0) continue;
    double* out = frame + static_cast<std::size_t>(*input) * Width;
    for (int l = 0; l < lanes; l += kVectorLanes) store(out + l, load(data + l));
  }
}

// Run the program on chunks [begin, end); visit(results) sees the registers after each, or after each vector
// of lanes.
template <class Visit>
void Linearizer::run_program(const EdgeGroup& g, const ProgramPtr& compiled, std::int64_t begin,
                             std::int64_t end, Workspace& workspace, Visit visit) const {
  if (begin >= end) return;
  const Program& program = *compiled;
  double* frame = workspace.prepare(compiled, g.kernel);
  double* narrow = program.narrow_code != nullptr ? workspace.prepare_narrow(compiled) : nullptr;
  RobustContext robust;
  robust.kernel = g.kernel.get();
  robust.frame = workspace.kernel_frame.data();
  PatientStop stop;
  for (std::int64_t chunk = begin; chunk < end && !stop.after(kChunkNanoseconds); ++chunk) {
    const int count = g.num_lanes(chunk);
    const double* const width =
        g.kernel ? g.data.data() + ((chunk + 1) * g.data_rows() - 1) * kLanes : nullptr;
    if (narrow == nullptr || g.common[static_cast<std::size_t>(chunk)]) {
      load_chunk<kLanes>(g, program, chunk, 0, frame);
      robust.width = width;
      execute(program, frame, robust, count);
      visit(Results{chunk, 0, count, frame, kLanes});
      continue;
    }
    for (int first = 0; first < count; first += kVectorLanes) {
      load_chunk<kVectorLanes>(g, program, chunk, first, narrow);
      robust.width = width == nullptr ? nullptr : width + first;
      program.narrow_code(narrow, robust, kVectorLanes);
      visit(Results{chunk, first, std::min(kVectorLanes, count - first), narrow, kVectorLanes});
    }
  }
}

namespace {

// Sum of the robust chi2 of edges, chunk by chunk.
class ChunkSum {
 public:
  void add(const EdgeGroup& g, const Results& results, std::int32_t rho) {
    const int count = g.num_lanes(results.chunk);
    if (results.count == count) return total_.add(sum_lanes(results.of(rho), count));
    std::copy_n(results.of(rho), results.count, lanes_ + results.first);
    if (results.first + results.count == count) total_.add(sum_lanes(lanes_, count));
  }
  double value() const { return total_.value(); }

 private:
  alignas(64) double lanes_[kLanes];
  CompensatedSum total_;
};

}  // namespace

namespace {

// Where an edge's pieces go in one partition.
struct Target {
  double *arena, *values, *b;

  double* of(const Piece& piece, std::int64_t code) const {
    return (Destination::arena(code) ? arena : piece.segment ? b : values) + Destination::offset(code);
  }

  void put_piece(const Piece& piece, std::int64_t code, const double* source) const {
    if (code == Destination::kSkip) return;
    if (Destination::sole(code))
      put<false>(of(piece, code), source, piece, code);
    else
      put<true>(of(piece, code), source, piece, code);
  }
};

// What the edges of some lanes have for one step: a row each, and codes.
struct StepRows {
  const double* rows;
  int stride;  // between the rows of two edges
  const std::int64_t* codes;
  int num_pieces;
  int count;

  const double* row(int l) const { return rows + l * stride; }
  std::int64_t code(int l) const { return codes[l * num_pieces]; }
};

// Vectors = 0: `vectors` says how many.
template <int Vectors>
inline void add_vectors(double* sum, const double* row, int vectors) {
  const int count = Vectors > 0 ? Vectors : vectors;
  for (int v = 0; v < count; ++v, sum += kVectorLanes, row += kVectorLanes)
    store(sum, load(sum) + load_unaligned(row));
}

template <int Vectors>
void add_records(const StepRows& edges, double* arena, int vectors) {
  for (int l = 0; l < edges.count; ++l)
    if (edges.code(l) != Destination::kSkip)
      add_vectors<Vectors>(arena + Destination::offset(edges.code(l)), edges.row(l), vectors);
}

// The same from the registers of a vector of lanes: rows that are added as they are transposed. `unused`: as
// many numbers that nobody reads.
inline void add_records_of_lanes(const double* frame, const std::int32_t* registers, int vectors,
                                 const StepRows& edges, double* arena, double* unused) {
  double* sums[kVectorLanes];
  for (int l = 0; l < kVectorLanes; ++l) {
    const std::int64_t code = l < edges.count ? edges.code(l) : Destination::kSkip;
    sums[l] = code == Destination::kSkip ? unused : arena + Destination::offset(code);
  }
  for (int v = 0; v < vectors; ++v, registers += kVectorLanes) {
    Vec tile[kVectorLanes];
    for (int i = 0; i < kVectorLanes; ++i)
      tile[i] = load(frame + static_cast<std::size_t>(registers[i]) * kVectorLanes);
    transpose_tile(tile);
#pragma GCC unroll 8
    for (int l = 0; l < kVectorLanes; ++l) {
      double* const sum = sums[l] + v * kVectorLanes;
      store(sum, load(sum) + tile[l]);
    }
  }
}

// Add up rows while their code stays the same; the sum of a run that ends goes where `summed` says.
template <int Vectors>
void sum_runs(const StepRows& edges, const Target& target, const Piece* pieces, double* sum,
              std::int64_t* summed, int vectors) {
  const int count = Vectors > 0 ? Vectors : vectors;
  for (int l = 0; l < edges.count;) {
    if (edges.code(l) != *summed) {
      target.put_piece(pieces[0], summed[0], sum);
      target.put_piece(pieces[1], summed[1], sum + pieces[0].length());
      summed[0] = edges.code(l), summed[1] = edges.codes[l * edges.num_pieces + 1];
      std::fill_n(sum, count * kVectorLanes, 0.0);
    }
    int end = l + 1;
    while (end < edges.count && edges.code(end) == *summed) ++end;
    for (int v = 0; v < count; ++v) {
      Vec total = load(sum + v * kVectorLanes);
      for (int k = l; k < end; ++k) total += load_unaligned(edges.row(k) + v * kVectorLanes);
      store(sum + v * kVectorLanes, total);
    }
    l = end;
  }
}

void put_pieces(const StepRows& edges, const Target& target, const Piece& piece, bool ahead,
                std::int64_t left) {
  for (int l = 0; l < edges.count; ++l) {
    if (ahead && l + kPrefetchDistance < left) {
      const std::int64_t next = edges.code(l + kPrefetchDistance);
      if (next != Destination::kSkip) prefetch(target.of(piece, next), piece.length());
    }
    target.put_piece(piece, edges.code(l), edges.row(l));
  }
}

// Blocks of one length that no other edge writes.
template <int Length>
bool store_sole(const StepRows& edges, double* values, std::int64_t left) {
  for (int l = 0; l < edges.count; ++l)
    if ((edges.code(l) & 7) != 4 || edges.code(l) == Destination::kSkip) return false;
  for (int l = 0; l < edges.count; ++l) {
    if (l + kSoleDistance < left) {
      const std::int64_t next = edges.code(l + kSoleDistance);
      if (next != Destination::kSkip) prefetch(values + Destination::offset(next), Length);
    }
    put_row<false>(values + Destination::offset(edges.code(l)), edges.row(l), Length);
  }
  return true;
}

// The lanes of a chunk whose edges add to the same places, summed.
void add_common(const EdgeGroup& g, const std::int64_t* codes, int count, const double* frame,
                const Target& target) {
  for (std::size_t p = 0; p < g.pieces.size(); ++p) {
    const Piece& piece = g.pieces[p];
    if (codes[p] == Destination::kSkip) continue;
    double* out = target.of(piece, codes[p]);
    for (int k = 0; k < piece.length(); ++k)
      out[k] +=
          sum_lanes(frame + static_cast<std::size_t>(g.row_registers[piece.row_offset + k]) * kLanes, count);
  }
}

}  // namespace

// Add what the edges of these lanes contribute.
void Linearizer::add_lanes(const EdgeGroup& g, const Results& results, Workspace& space, double* arena,
                           double* values, double* b) const {
  const Target target{arena, values, b};
  const int count = results.count, num_pieces = static_cast<int>(g.pieces.size());
  const std::int64_t* codes = g.destinations.data() + results.edge(0) * num_pieces;
  if (g.common[static_cast<std::size_t>(results.chunk)])
    return add_common(g, codes, count, results.frame, target);
  const int stride = padded(g.num_outputs);
  double* const rows = space.rows.data();
  const bool is_narrow = results.width != kLanes;
  const std::int32_t* const registers = g.row_registers.data();
  if (is_narrow)
    for (const auto& [begin, end] : g.plain)
      lanes_to_rows<kVectorLanes>(results.frame, registers + begin, end - begin, rows + begin, stride,
                                  kVectorLanes);
  else
    lanes_to_rows<kLanes>(results.frame, registers, g.num_outputs, rows, stride, padded(count));
  for (const Step& step : g.steps) {
    const Piece* const piece = g.pieces.data() + step.piece;
    const StepRows edges{rows + piece->row_offset, stride, codes + step.piece, num_pieces, count};
    if (step.kind == Step::kRecord && is_narrow) {
      add_records_of_lanes(results.frame, registers + piece->row_offset, step.vectors, edges, arena,
                           rows + piece->row_offset);
    } else if (step.kind == Step::kRecord) {
      (step.vectors == 4 ? add_records<4> : add_records<0>)(edges, arena, step.vectors);
    } else if (step.kind == Step::kRun) {
      double* const sum = space.runs.data() + step.first;
      std::int64_t* const summed = space.run_codes.data() + step.piece;
      (step.vectors == 2 ? sum_runs<2> : sum_runs<0>)(edges, target, piece, sum, summed, step.vectors);
    } else if (piece->length() != 18 || !store_sole<18>(edges, values, g.num_edges - results.edge(0))) {
      put_pieces(edges, target, *piece, step.prefetch, g.num_edges - results.edge(0));
    }
  }
}

// Add the sums of the last runs.
void Linearizer::finish_runs(const EdgeGroup& g, Workspace& space, double* arena, double* values,
                             double* b) const {
  const Target target{arena, values, b};
  for (const Step& step : g.steps) {
    if (step.kind != Step::kRun) continue;
    const Piece* const piece = g.pieces.data() + step.piece;
    const double* const sum = space.runs.data() + step.first;
    target.put_piece(piece[0], space.run_codes[static_cast<std::size_t>(step.piece)], sum);
    target.put_piece(piece[1], space.run_codes[static_cast<std::size_t>(step.piece) + 1],
                     sum + piece->length());
  }
}

double Linearizer::linearize_partition(int t, double* values, double* b) {
  AlignedVector<double>& arena = arenas_[static_cast<std::size_t>(t)];
  std::fill(arena.begin(), arena.end(), 0.0);
  Workspace& space = workspace(kLinearize);
  ChunkSum total;
  for (const auto& group_pointer : groups_) {
    const EdgeGroup& g = *group_pointer;
    const std::size_t size = static_cast<std::size_t>(padded(g.num_outputs)) * kLanes + kVectorLanes;
    if (space.rows.size() < size) space.rows.resize(size);  // a run reads whole vectors
    space.runs.resize(static_cast<std::size_t>(g.run_size));
    space.run_codes.assign(g.pieces.size(), Destination::kSkip);
    run_program(g, g.linearize, g.first_chunk[t], g.first_chunk[t + 1], space, [&](const Results& results) {
      total.add(g, results, g.linearize->output_registers[0]);
      add_lanes(g, results, space, arena.data(), values, b);
    });
    finish_runs(g, space, arena.data(), values, b);
  }
  return total.value();
}

void Linearizer::reduce(const Reduction& r, double* values, double* b) const {
  double* target = (r.segment ? b : values) + r.offset;
  for (std::int64_t k = r.first_copy; k < r.first_copy + r.num_copies; ++k) {
    const Copy& copy = copies_[static_cast<std::size_t>(k)];
    const double* source = arenas_[static_cast<std::size_t>(copy.partition)].data() + copy.offset;
    if (r.packed_dim > 0) {
      add_triangle(target, source, r.packed_dim);
      put_row<true>(b + r.b_offset, source + r.packed_dim * (r.packed_dim + 1) / 2, r.packed_dim);
    } else {
      put_row<true>(target, source, r.length);
    }
  }
}

double Linearizer::sum_partitions(const std::vector<double>& sums) const {
  CompensatedSum total;
  for (const double x : sums) total.add(x);
  return total.value();
}

double Linearizer::linearize(double* values, std::int64_t values_size, double* b, std::int64_t b_size) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  if (values_size != values_size_ || b_size != b_size_)
    throw std::invalid_argument("Linearizer.linearize: values and b have lengths " +
                                std::to_string(values_size) + " and " + std::to_string(b_size) +
                                ", prepared for " + std::to_string(values_size_) + " and " +
                                std::to_string(b_size_));
  const auto share = [&](std::int64_t size, int t, auto&& action) {
    std::int64_t begin, end;
    partition(size, t, num_partitions_, begin, end);
    action(begin, end);
  };
  for_each_partition([&](int t) {
    share(stored_.num_words(), t, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end && !stop_requested(); begin += kWordsAtOnce)  // the first time it gets the memory
        stored_.clear_others(begin, std::min(begin + kWordsAtOnce, end), values, values_size);
    });
    share(b_size, t, [&](std::int64_t begin, std::int64_t end) { std::fill(b + begin, b + end, 0.0); });
  });
  throw_if_stopped();
  std::vector<double> sums(static_cast<std::size_t>(num_partitions_));
  for_each_partition([&](int t) { sums[static_cast<std::size_t>(t)] = linearize_partition(t, values, b); });
  throw_if_stopped();
  if (!reductions_.empty())
    for_each_partition([&](int t) {
      share(static_cast<std::int64_t>(reductions_.size()), t, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          reduce(reductions_[static_cast<std::size_t>(i)], values, b);
      });
    });
  return sum_partitions(sums);
}

double Linearizer::chi2() {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  std::vector<double> sums(static_cast<std::size_t>(num_partitions_));
  for_each_partition([&](int t) {
    ChunkSum total;
    for (const auto& g : groups_)
      run_program(*g, g->chi2, g->first_chunk[t], g->first_chunk[t + 1], workspace(kChi2),
                  [&](const Results& results) { total.add(*g, results, g->chi2->output_registers[0]); });
    sums[static_cast<std::size_t>(t)] = total.value();
  });
  throw_if_stopped();
  return sum_partitions(sums);
}

void Linearizer::edge_chi2(int index, double* out) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  const EdgeGroup& g = group(index);
  for_each_partition([&](int t) {
    run_program(g, g.chi2, g.first_chunk[t], g.first_chunk[t + 1], workspace(kChi2),
                [&](const Results& results) {
                  const double* const chi2 = results.of(g.chi2->output_registers[1]);
                  for (int l = 0; l < results.count; ++l) out[g.order[results.edge(l)]] = chi2[l];
                });
  });
  throw_if_stopped();
}

void Linearizer::errors(int index, double* out) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  const EdgeGroup& g = group(index);
  for_each_partition([&](int t) {
    run_program(
        g, g.chi2, g.first_chunk[t], g.first_chunk[t + 1], workspace(kChi2), [&](const Results& results) {
          for (int k = 0; k < g.residual_dim; ++k) {
            const double* const error = results.of(g.chi2->output_registers[k + 2]);
            for (int l = 0; l < results.count; ++l)
              out[static_cast<std::int64_t>(g.order[results.edge(l)]) * g.residual_dim + k] = error[l];
          }
        });
  });
  throw_if_stopped();
}

void Linearizer::oplus(const double* dx, std::int64_t size) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  if (size != b_size_)
    throw std::invalid_argument("Linearizer.oplus: dx has length " + std::to_string(size) + ", expected " +
                                std::to_string(b_size_));
  for_each_partition([&](int t) {
    for (const VertexSet& set : vertex_sets_) {
      if (set.optimized.empty()) continue;  // another program would fill the registers' constants again
      const Program& program = *set.oplus;
      double* frame = workspace(kUpdate).prepare(set.oplus, nullptr);
      const std::int64_t count = static_cast<std::int64_t>(set.optimized.size());
      std::int64_t begin, end;
      partition((count + kLanes - 1) / kLanes, t, num_partitions_, begin, end);
      for (std::int64_t first = begin * kLanes; first < std::min(end * kLanes, count); first += kLanes) {
        const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, count - first));
        for (int l = 0; l < (lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes; ++l) {
          const std::int32_t row = set.optimized[static_cast<std::size_t>(first + std::min(l, lanes - 1))];
          const double* storage = set.estimate.row(row);
          const double* delta = dx + set.offset[static_cast<std::size_t>(row)];
          for (int k = 0; k < program.num_inputs(); ++k) {
            const std::int32_t r = program.input_registers[static_cast<std::size_t>(k)];
            if (r < 0) continue;
            frame[static_cast<std::size_t>(r) * kLanes + l] =
                k < set.estimate.columns ? storage[k] : delta[k - set.estimate.columns];
          }
        }
        execute(program, frame, RobustContext{}, lanes);
        for (int l = 0; l < lanes; ++l) {
          double* storage = set.estimate.row(set.optimized[static_cast<std::size_t>(first + l)]);
          for (int k = 0; k < set.estimate.columns; ++k)
            storage[k] =
                frame[static_cast<std::size_t>(program.output_registers[static_cast<std::size_t>(k)]) *
                          kLanes +
                      l];
        }
      }
    }
  });
}

void Linearizer::push() {
  const std::lock_guard<CallMutex> lock(mutex_);
  for (VertexSet& set : vertex_sets_)
    if (!set.optimized.empty())
      set.backups.emplace_back(set.estimate.data, set.estimate.data + set.estimate.size());
}

void Linearizer::pop() {
  const std::lock_guard<CallMutex> lock(mutex_);
  for (VertexSet& set : vertex_sets_) {
    if (set.optimized.empty()) continue;  // oplus does not move them
    if (set.backups.empty()) throw std::logic_error("Linearizer.pop: nothing was pushed");
    std::copy(set.backups.back().begin(), set.backups.back().end(), set.estimate.data);
    set.backups.pop_back();
  }
}

void Linearizer::discard_top() {
  const std::lock_guard<CallMutex> lock(mutex_);
  for (VertexSet& set : vertex_sets_) {
    if (set.optimized.empty()) continue;
    if (set.backups.empty()) throw std::logic_error("Linearizer.discard_top: nothing was pushed");
    set.backups.pop_back();
  }
}

std::optional<std::pair<int, std::int64_t>> Linearizer::first_non_finite() {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  for (std::size_t k = 0; k < groups_.size(); ++k) {
    const EdgeGroup& g = *groups_[k];
    std::int64_t first = g.num_edges;
    run_program(g, g.linearize, 0, g.num_chunks, workspace(kLinearize), [&](const Results& results) {
      for (int l = 0; l < results.count; ++l)
        for (const std::int32_t r : g.linearize->output_registers)
          if (!std::isfinite(results.of(r)[l]))
            first = std::min<std::int64_t>(first, g.order[results.edge(l)]);
    });
    if (first < g.num_edges) return std::make_pair(static_cast<int>(k), first);
  }
  return std::nullopt;
}

}  // namespace graphopt::vm
