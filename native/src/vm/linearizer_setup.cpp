// The part of Linearizer that runs once per structure: checks, edge order, partition, destinations.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "parallel/radix_sort.h"
#include "parallel/shares.h"
#include "parallel/stopping.h"
#include "vm/linearizer.h"

namespace graphopt::vm {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("Linearizer: " + what); }

// A macro, so that the text is only put together where it is needed.
#define CHECK(condition, what)    \
  do {                            \
    if (!(condition)) fail(what); \
  } while (false)

std::string text(std::int64_t n) { return std::to_string(n); }

// Fill in where the pieces of an edge lie in its row of outputs, and the register of every number of that
// row. Returns the number of results that the linearize program must have.
int describe_outputs(EdgeGroup& g, const std::vector<VertexSet>& sets, const Program& program) {
  g.pieces.clear();
  g.row_registers.clear();
  g.plain.clear();
  const auto dim = [&](int slot) { return sets[static_cast<std::size_t>(g.vertex_sets[slot])].tangent_dim; };
  int segments = 1;  // results after rho: pairs, then segments of b
  for (int a = 0; a < g.arity(); ++a)
    for (int b = a; b < g.arity(); ++b) segments += a == b ? dim(a) * (dim(a) + 1) / 2 : dim(a) * dim(b);
  const auto push = [&](int result) {
    g.row_registers.push_back(result < program.num_outputs() ? program.output_registers[result] : 0);
  };
  const auto align = [&] {
    while (g.row_registers.size() % kVectorLanes != 0) push(0);
  };
  int result = 1, segment = segments, pair = 0;
  for (int a = 0; a < g.arity(); ++a)
    for (int b = a; b < g.arity(); ++b, ++pair) {
      Piece piece{dim(a), dim(b), a, pair, a == b};
      piece.packed = a == b && sets[static_cast<std::size_t>(g.vertex_sets[a])].packed;
      if (piece.packed) align();
      piece.row_offset = static_cast<int>(g.row_registers.size());
      for (int j = 0; j < piece.columns; ++j)
        for (int i = 0; i < piece.rows; ++i) {
          // of a diagonal block the program computes the upper triangle, packed by columns
          const int high = std::max(i, j), low = std::min(i, j);
          if (!piece.packed || i <= j)
            push(result + (piece.diagonal ? high * (high + 1) / 2 + low : j * piece.rows + i));
        }
      result += piece.diagonal ? piece.triangle() : piece.length();
      g.pieces.push_back(piece);
      if (!piece.diagonal) continue;
      if (!piece.packed) {
        Piece of_b{dim(a), 1, a, pair, false, true};
        of_b.row_offset = static_cast<int>(g.row_registers.size());
        g.pieces.push_back(of_b);
      }
      for (int i = 0; i < dim(a); ++i) push(segment++);
      if (piece.packed) align();
    }
  g.num_outputs = static_cast<int>(g.row_registers.size());
  int end = 0;  // of the packed piece before, which begins and ends with whole vectors
  for (const Piece& piece : g.pieces) {
    if (!piece.packed) continue;
    if (piece.row_offset > end) g.plain.emplace_back(end, piece.row_offset);
    end = piece.row_offset + (piece.length() + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
  }
  if (g.num_outputs > end) g.plain.emplace_back(end, g.num_outputs);
  return segment;
}

// Edges and work below which waking other threads costs more than it saves.
// Instructions times chunks times lanes: of work that more than one thread does, and of each thread's part of
// it.
constexpr std::int64_t kSmallestSharedWork = 400'000, kSmallestShareOfWork = 200'000;
constexpr std::int64_t kEdgesPerThread = 30'000;  // of a pass over the edges of a group: 100 us or more

// task(begin, end) for shares of `size` edges, by all threads that are worth it.
template <class Task>
void for_edges(std::int64_t size, const Task& task) {
  const int shares = ThreadPool::instance().threads_for(size, kEdgesPerThread);
  for_each_share(size, shares, [&](int, std::int64_t begin, std::int64_t end) { task(begin, end); });
}

// The same for chunks of them.
template <class Task>
void for_chunks(std::int64_t num_chunks, const Task& task) {
  const int shares = ThreadPool::instance().threads_for(num_chunks * kLanes, kEdgesPerThread);
  for_each_share(num_chunks, shares, [&](int, std::int64_t begin, std::int64_t end) { task(begin, end); });
}

}  // namespace

int Linearizer::add_vertex_set(View<double> estimate, ProgramPtr oplus, std::vector<std::int64_t> offset) {
  const std::lock_guard<CallMutex> lock(mutex_);
  CHECK(oplus->num_outputs() == estimate.columns, "the oplus program returns " + text(oplus->num_outputs()) +
                                                      " numbers, estimate has " + text(estimate.columns) +
                                                      " columns");
  CHECK(oplus->num_inputs() >= estimate.columns, "the oplus program takes storage and then a tangent vector");
  CHECK(static_cast<std::int64_t>(offset.size()) == estimate.rows,
        "offset has length " + text(static_cast<std::int64_t>(offset.size())) +
            ", expected one per vertex, " + text(estimate.rows));
  VertexSet set;
  set.tangent_dim = oplus->num_inputs() - estimate.columns;
  set.estimate = std::move(estimate);
  set.oplus = std::move(oplus);
  set.offset = std::move(offset);
  for (std::int64_t i = 0; i < set.estimate.rows; ++i)
    if (set.offset[static_cast<std::size_t>(i)] >= 0) set.optimized.push_back(static_cast<std::int32_t>(i));
  vertex_sets_.push_back(std::move(set));
  prepared_ = false;
  return static_cast<int>(vertex_sets_.size()) - 1;
}

int Linearizer::add_parameter_set(View<const double> values) {
  const std::lock_guard<CallMutex> lock(mutex_);
  parameter_sets_.push_back(std::move(values));
  return static_cast<int>(parameter_sets_.size()) - 1;
}

int Linearizer::add_edge_group(EdgeGroupInput input) {
  const std::lock_guard<CallMutex> lock(mutex_);
  auto group = std::make_unique<EdgeGroup>();
  EdgeGroup& g = *group;
  g.vertex_sets = input.vertex_sets;
  g.parameter_sets = input.parameter_sets;
  g.num_rows = g.num_edges = input.vertex_rows.rows;
  const int arity = g.arity(), num_pairs = arity * (arity + 1) / 2;
  CHECK(arity > 0, "an edge group needs at least one vertex slot");
  CHECK(input.vertex_rows.columns == arity, "vertex_rows has " + text(input.vertex_rows.columns) +
                                                " columns, expected one per vertex set, " + text(arity));
  CHECK(input.parameter_rows.columns == static_cast<int>(g.parameter_sets.size()),
        "parameter_rows has " + text(input.parameter_rows.columns) +
            " columns, expected one per parameter set, " +
            text(static_cast<std::int64_t>(g.parameter_sets.size())));
  CHECK(input.block_offset.columns == num_pairs && input.block_transposed.columns == num_pairs,
        "block_offset and block_transposed have " + text(input.block_offset.columns) + " and " +
            text(input.block_transposed.columns) + " columns, expected one per pair, " + text(num_pairs));
  for (const std::int64_t rows :
       {input.parameter_rows.rows, input.measurement.rows, input.information.rows, input.kernel_width.rows,
        input.block_offset.rows, input.block_transposed.rows})
    CHECK(rows == g.num_edges, "the arrays of an edge group have " + text(g.num_edges) +
                                   " (vertex_rows) and " + text(rows) + " rows");

  g.measurement_dim = input.measurement.columns;
  g.information_dim = input.information.columns;
  int num_inputs = g.measurement_dim + g.information_dim;
  for (int a = 0; a < arity; ++a) {
    const int set = g.vertex_sets[a];
    CHECK(set >= 0 && set < static_cast<int>(vertex_sets_.size()), "there is no vertex set " + text(set));
    num_inputs += vertex_sets_[set].estimate.columns;
    for (std::int64_t i = 0; i < g.num_edges; ++i) {
      throw_if_stopped_at(i);
      const std::int32_t row = input.vertex_rows.row(i)[a];
      CHECK(row >= 0 && row < vertex_sets_[set].estimate.rows,
            "edge " + text(i) + " names row " + text(row) + " of a vertex set with " +
                text(vertex_sets_[set].estimate.rows) + " vertices");
    }
  }
  for (std::size_t p = 0; p < g.parameter_sets.size(); ++p) {
    const int set = g.parameter_sets[p];
    CHECK(set >= 0 && set < static_cast<int>(parameter_sets_.size()),
          "there is no parameter set " + text(set));
    num_inputs += parameter_sets_[set].columns;
    for (std::int64_t i = 0; i < g.num_edges; ++i) {
      throw_if_stopped_at(i);
      const std::int32_t row = input.parameter_rows.row(i)[p];
      CHECK(row >= 0 && row < parameter_sets_[set].rows, "edge " + text(i) + " names row " + text(row) +
                                                             " of a parameter set with " +
                                                             text(parameter_sets_[set].rows) + " parameters");
    }
  }
  for (int a = 0; a < arity; ++a)
    for (int c = a + 1; c < arity; ++c)
      if (g.vertex_sets[a] == g.vertex_sets[c])
        for (std::int64_t i = 0; i < g.num_edges; ++i) {
          throw_if_stopped_at(i);
          CHECK(
              input.vertex_rows.row(i)[a] != input.vertex_rows.row(i)[c],
              "edge " + text(i) + " has row " + text(input.vertex_rows.row(i)[a]) + " of a vertex set twice");
        }
  const int num_results = describe_outputs(g, vertex_sets_, *input.linearize);
  CHECK(input.chi2->num_inputs() == num_inputs && input.linearize->num_inputs() == num_inputs,
        "the programs take " + text(input.chi2->num_inputs()) + " and " +
            text(input.linearize->num_inputs()) +
            " numbers; vertices, parameters, measurement and information have " + text(num_inputs));
  CHECK(input.linearize->num_outputs() == num_results,
        "the linearize program returns " + text(input.linearize->num_outputs()) + " numbers, expected " +
            text(num_results) + " for these tangent dimensions");
  CHECK(input.chi2->num_outputs() > 2, "the chi2 program returns rho, chi2 and the residual");
  CHECK(input.kernel == nullptr || (input.kernel->num_inputs() == 2 && input.kernel->num_outputs() == 2),
        "the kernel program maps (chi2, width) to (rho, weight)");
  CHECK(input.kernel != nullptr || !(input.chi2->uses_robust || input.linearize->uses_robust),
        "the programs were compiled for a robust kernel, but kernel_program is None");
  g.residual_dim = input.chi2->num_outputs() - 2;
  g.chi2 = input.chi2;
  g.linearize = input.linearize;
  g.kernel = input.kernel;
  g.input = std::move(input);
  groups_.push_back(std::move(group));
  prepared_ = false;
  return static_cast<int>(groups_.size()) - 1;
}

void Linearizer::refer_to_estimate(int set, double* estimate) {
  const std::lock_guard<CallMutex> lock(mutex_);
  CHECK(set >= 0 && set < static_cast<int>(vertex_sets_.size()), "there is no vertex set " + text(set));
  vertex_sets_[static_cast<std::size_t>(set)].estimate.data = estimate;
}

void Linearizer::refer_to_parameters(int set, const double* values) {
  const std::lock_guard<CallMutex> lock(mutex_);
  CHECK(set >= 0 && set < static_cast<int>(parameter_sets_.size()), "there is no parameter set " + text(set));
  parameter_sets_[static_cast<std::size_t>(set)].data = values;
}

void Linearizer::set_edge_data(int index, View<const double> measurement, View<const double> information,
                               View<const double> kernel_width) {
  const std::lock_guard<CallMutex> lock(mutex_);
  group(index);  // checks the index
  EdgeGroup& g = *groups_[static_cast<std::size_t>(index)];
  CHECK(measurement.rows == g.num_rows && measurement.columns == g.measurement_dim &&
            information.rows == g.num_rows && information.columns == g.information_dim &&
            kernel_width.rows == g.num_rows,
        "set_edge_data: the arrays do not have the shapes that the group was added with");
  if (prepared_) {
    pack_data(g, measurement, information, kernel_width);
  } else {
    g.input.measurement = std::move(measurement);
    g.input.information = std::move(information);
    g.input.kernel_width = std::move(kernel_width);
  }
}

void Linearizer::set_weights(int index, const View<const double>& weight, double kernel_width) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  group(index);  // checks the index
  EdgeGroup& g = *groups_[static_cast<std::size_t>(index)];
  CHECK(weight.size() == g.num_rows, "set_weights takes a weight for each edge of its group");
  CHECK(g.information_dim == g.residual_dim,
        "set_weights: the programs of the group are not for diagonal information");
  for (std::int64_t c = 0; c < g.num_chunks; ++c) {
    double* out = g.data.data() + (c * g.data_rows() + g.measurement_dim) * kLanes;
    for (int l = 0; l < kLanes; ++l) {
      const double one = weight.data[g.order[c * kLanes + std::min(l, g.num_lanes(c) - 1)]];
      for (int k = 0; k < g.information_dim; ++k) out[k * kLanes + l] = one;
    }
    if (g.kernel) std::fill_n(out + g.information_dim * kLanes, kLanes, kernel_width);
  }
}

void Linearizer::prepare(std::int64_t values_size, std::int64_t b_size) {
  const std::lock_guard<CallMutex> lock(mutex_);
  CHECK(!prepared_, "prepare() was called twice; make a new Linearizer for another structure");
  for (const auto& g : groups_)
    CHECK(g->order.empty(), "a group was added after prepare(); make a new Linearizer");
  values_size_ = values_size;
  b_size_ = b_size;
  for (const auto& g : groups_)
    for_edges(g->num_edges, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        throw_if_stopped_at(i);
        for (const Piece& piece : g->pieces) {
          if (piece.segment) continue;
          const std::int64_t offset = g->input.block_offset.row(i)[piece.pair];
          CHECK(offset == -1 || (offset >= 0 && offset + piece.rows * piece.columns <= values_size),
                "block_offset of edge " + text(i) + ", pair " + text(piece.pair) + " is " + text(offset) +
                    ", the block ends behind values_size " + text(values_size));
        }
      }
    });
  for (const VertexSet& set : vertex_sets_)
    for (const std::int32_t row : set.optimized)
      CHECK(set.offset[row] + set.tangent_dim <= b_size, "offset of vertex row " + text(row) + " is " +
                                                             text(set.offset[row]) +
                                                             ", it ends behind b_size " + text(b_size));
  choose_packing();
  for (const auto& g : groups_) {
    describe_outputs(*g, vertex_sets_, *g->linearize);
    sort_edges(*g);
    g->order = g->all;
  }
  arrange();
  for (const auto& g : groups_) {
    pack_data(*g, g->input.measurement, g->input.information, g->input.kernel_width);
    g->input.measurement = g->input.information = g->input.kernel_width = {};
  }
  prepared_ = true;
}

void Linearizer::choose_edges(const std::vector<View<const bool>>& masks) {
  const std::lock_guard<CallMutex> lock(mutex_);
  require_prepared();
  CHECK(masks.size() == groups_.size(), "choose_edges takes a mask for each group");
  for (std::size_t k = 0; k < masks.size(); ++k)
    CHECK(masks[k].rows == groups_[k]->num_rows, "choose_edges: a mask has one entry per edge of its group");
  for (std::size_t k = 0; k < masks.size(); ++k) {
    EdgeGroup& g = *groups_[k];
    g.order.clear();
    std::copy_if(g.all.begin(), g.all.end(), std::back_inserter(g.order),
                 [&](std::int32_t row) { return masks[k].data[row]; });
    g.num_edges = static_cast<std::int64_t>(g.order.size());
  }
  arrange();
}

// What is not prepared yet is thrown away by whoever is asked to stop; later it must stay whole.
void Linearizer::may_stop_at(std::int64_t row) const {
  if (!prepared_) throw_if_stopped_at(row);
}

// Everything that depends on which edges take part.
void Linearizer::arrange() {
  for (const auto& g : groups_) {
    g->num_chunks = (g->num_edges + kLanes - 1) / kLanes;
    pack_rows(*g);
  }
  choose_partitions();
  assign_destinations();
}

// Sort by the last block that an edge writes (of an edge between two optimized vertices the off-diagonal
// one).
void Linearizer::sort_edges(EdgeGroup& g) {
  std::vector<std::int64_t> key(static_cast<std::size_t>(g.num_edges), -1);
  for_edges(g.num_edges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      throw_if_stopped_at(i);
      const std::int64_t* offsets = g.input.block_offset.row(i);
      std::int64_t inner = -1, diagonal = -1;
      for (const Piece& piece : g.pieces) {
        if (piece.segment) continue;
        std::int64_t& best = piece.diagonal ? diagonal : inner;
        best = std::max(best, offsets[piece.pair]);
      }
      key[static_cast<std::size_t>(i)] = inner >= 0 ? inner : diagonal;
    }
  });
  g.all = sorted_order(key);
}

void Linearizer::pack_rows(EdgeGroup& g) {
  const auto pack = [&](const View<const std::int32_t>& rows, UnsetVector<std::int32_t>& packed) {
    packed.resize(static_cast<std::size_t>(g.num_chunks) * rows.columns * kLanes);
    for_chunks(g.num_chunks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        may_stop_at(c);
        for (int l = 0; l < kLanes; ++l) {
          const std::int64_t at = c * kLanes + std::min(l, g.num_lanes(c) - 1);  // padded with the last edge
          const std::int32_t* const row = rows.row(g.order[at]);
          for (int k = 0; k < rows.columns; ++k)
            packed[static_cast<std::size_t>((c * rows.columns + k) * kLanes + l)] = row[k];
        }
      }
    });
  };
  pack(g.input.vertex_rows, g.vertex_rows);
  pack(g.input.parameter_rows, g.parameter_rows);
}

void Linearizer::pack_data(EdgeGroup& g, const View<const double>& measurement,
                           const View<const double>& information, const View<const double>& kernel_width) {
  g.data.resize(static_cast<std::size_t>(g.num_chunks) * g.data_rows() * kLanes);
  for_chunks(g.num_chunks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      may_stop_at(c);
      double* chunk = g.data.data() + c * g.data_rows() * kLanes;
      const int lanes = g.num_lanes(c) <= kVectorLanes ? kVectorLanes : kLanes;  // that anybody runs
      for (int l = 0; l < lanes; ++l) {
        const std::int64_t row = g.order[c * kLanes + std::min(l, g.num_lanes(c) - 1)];
        double* out = chunk + l;
        for (int k = 0; k < g.measurement_dim; ++k, out += kLanes) *out = measurement.row(row)[k];
        for (int k = 0; k < g.information_dim; ++k, out += kLanes) *out = information.row(row)[k];
        if (g.kernel) *out = kernel_width.data[row];
      }
    }
  });
}

// A packed triangle is shorter to add than a block, but has to be unpacked once per block and partition.
void Linearizer::choose_packing() {
  constexpr int kSmallestDim = 5, kFewestEdges = 8;
  std::vector<std::int64_t> num_edges(vertex_sets_.size());
  for (const auto& g : groups_)
    for (const int set : g->vertex_sets) num_edges[static_cast<std::size_t>(set)] += g->num_edges;
  for (std::size_t s = 0; s < vertex_sets_.size(); ++s)
    vertex_sets_[s].packed =
        vertex_sets_[s].tangent_dim >= kSmallestDim &&
        num_edges[s] >= kFewestEdges * static_cast<std::int64_t>(vertex_sets_[s].optimized.size());
}

void Linearizer::choose_partitions() {
  std::int64_t work = 0;
  for (const auto& g : groups_) work += g->num_chunks * kLanes * g->linearize->num_instructions;
  num_partitions_ =
      work < kSmallestSharedWork ? 1 : ThreadPool::instance().threads_for(work, kSmallestShareOfWork);
  for (const auto& g : groups_) {
    g->first_chunk.assign(static_cast<std::size_t>(num_partitions_) + 1, 0);
    for (int t = 0; t < num_partitions_; ++t) {
      std::int64_t begin, end;
      partition(g->num_chunks, t, num_partitions_, begin, end);
      g->first_chunk[static_cast<std::size_t>(t) + 1] = end;
    }
  }
}

void Linearizer::assign_destinations() {
  // the block or segment of every edge and piece, as if nothing were shared
  for (const auto& g : groups_) {
    const int num_pieces = static_cast<int>(g->pieces.size());
    g->destinations.resize(static_cast<std::size_t>(g->num_edges) * num_pieces);
    for_edges(g->num_edges, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        may_stop_at(at);
        const std::int64_t row = g->order[at];
        std::int64_t* out = g->destinations.data() + at * num_pieces;
        for (int p = 0; p < num_pieces; ++p) {
          const Piece& piece = g->pieces[p];
          std::int64_t offset;
          bool transposed = false;
          if (piece.segment) {
            const std::int32_t vertex = g->input.vertex_rows.row(row)[piece.slot];
            offset = vertex_sets_[g->vertex_sets[piece.slot]].offset[vertex];
          } else {
            offset = g->input.block_offset.row(row)[piece.pair];
            transposed = !piece.diagonal && g->input.block_transposed.row(row)[piece.pair];
          }
          out[p] = offset < 0 ? Destination::kSkip : Destination::make(offset, false, false, transposed);
        }
      }
    });
  }
  find_sole_destinations();
  arenas_.assign(static_cast<std::size_t>(num_partitions_), {});
  reductions_.clear();
  copies_.clear();
  find_shared_destinations();
  find_common_destinations();
  for (const auto& g : groups_) choose_steps(*g);
  find_sole_runs();
}

// Off-diagonal blocks that a single edge writes, such as the camera-landmark blocks of bundle adjustment.
void Linearizer::find_sole_destinations() {
  Bitmap once(values_size_), again(values_size_);
  const auto visit = [&](auto&& action) {
    for (const auto& g : groups_)
      for (std::size_t p = 0; p < g->pieces.size(); ++p) {
        const Piece& piece = g->pieces[p];
        if (piece.segment || piece.diagonal) continue;
        for (std::int64_t at = 0; at < g->num_edges; ++at) {
          may_stop_at(at);
          std::int64_t& code = g->destinations[static_cast<std::size_t>(at) * g->pieces.size() + p];
          if (code != Destination::kSkip) action(piece, code);
        }
      }
  };
  visit([&](const Piece&, std::int64_t code) {
    const std::int64_t offset = Destination::offset(code);
    (once.test(offset) ? again : once).set(offset);
  });
  stored_ = Bitmap(values_size_);
  visit([&](const Piece& piece, std::int64_t& code) {
    const std::int64_t offset = Destination::offset(code);
    if (again.test(offset)) return;
    code = Destination::make(offset, true, false, Destination::transposed(code));
    stored_.set_range(offset, offset + piece.length());
  });
}

// Chunks whose edges all add to the same places, such as those of a single pose: their lanes are summed
// first.
void Linearizer::find_common_destinations() {
  for (const auto& g : groups_) {
    const std::size_t num_pieces = g->pieces.size();
    g->common.assign(static_cast<std::size_t>(g->num_chunks), 0);
    for (std::int64_t chunk = 0; chunk < g->num_chunks; ++chunk) {
      may_stop_at(chunk);
      const std::int64_t* first =
          g->destinations.data() + chunk * kLanes * static_cast<std::int64_t>(num_pieces);
      bool is_common = g->num_lanes(chunk) > 1;
      for (int l = 1; l < g->num_lanes(chunk) && is_common; ++l)
        is_common = std::equal(first, first + num_pieces, first + l * num_pieces);
      for (std::size_t p = 0; p < num_pieces && is_common; ++p)
        is_common = first[p] == Destination::kSkip || !Destination::transposed(first[p]);
      g->common[static_cast<std::size_t>(chunk)] = is_common;
    }
  }
}

// A vertex that several edges in a row have is worth a sum beside H and b.
void Linearizer::choose_steps(EdgeGroup& g) const {
  constexpr std::int64_t kShortestRun = 3;  // on the average
  const std::size_t num_pieces = g.pieces.size();
  const auto vectors = [](int numbers) { return (numbers + kVectorLanes - 1) / kVectorLanes; };
  g.steps.clear();
  g.run_size = 0;
  for (std::size_t p = 0; p < num_pieces; ++p) {
    const Piece& piece = g.pieces[p];
    Step step;
    step.piece = static_cast<int>(p);
    const auto code = [&](std::int64_t at) {
      return g.destinations[static_cast<std::size_t>(at) * num_pieces + p];
    };
    if (piece.packed) {
      step.kind = Step::kRecord;
      step.vectors = vectors(piece.length());
    } else {
      std::int64_t changes = 1, sole = 0;
      for (std::int64_t at = 0; at < g.num_edges; ++at) {
        may_stop_at(at);
        if (at > 0 && code(at) != code(at - 1)) ++changes;
        if (code(at) == Destination::kSkip || Destination::sole(code(at))) ++sole;
      }
      step.prefetch = 2 * sole < g.num_edges;
      if (piece.diagonal && kShortestRun * changes <= g.num_edges) {
        step.kind = Step::kRun;
        step.vectors = vectors(piece.length() + piece.rows);
        step.first = g.run_size;
        g.run_size += step.vectors * kVectorLanes;
        ++p;  // its segment
      }
    }
    g.steps.push_back(step);
  }
}

// Diagonal blocks that get the sum of a single run, such as the landmarks' of bundle adjustment: the sum is
// stored instead of added, so nobody has to clear them.
void Linearizer::find_sole_runs() {
  Bitmap once(values_size_), again(values_size_);
  const auto visit = [&](auto&& action) {
    for (const auto& g : groups_)
      for (const Step& step : g->steps) {
        const Piece& piece = g->pieces[static_cast<std::size_t>(step.piece)];
        if (!piece.diagonal || piece.packed) continue;
        const bool may = step.kind == Step::kRun &&
                         std::none_of(g->common.begin(), g->common.end(), [](char one) { return one != 0; });
        for (std::int64_t at = 0; at < g->num_edges; ++at) {
          may_stop_at(at);
          std::int64_t* const code =
              g->destinations.data() + at * static_cast<std::int64_t>(g->pieces.size()) + step.piece;
          if (*code != Destination::kSkip && !Destination::arena(*code)) action(piece, code, at, may);
        }
      }
  };
  std::int64_t last = Destination::kSkip, last_at = -1;
  visit([&](const Piece&, const std::int64_t* code, std::int64_t at, bool may) {
    const std::int64_t offset = Destination::offset(*code);
    const bool goes_on = may && at > 0 && at == last_at + 1 && offset == last;
    last = offset, last_at = at;
    if (goes_on) return;
    (once.test(offset) ? again : once).set(offset);
  });
  last = Destination::kSkip;
  visit([&](const Piece& piece, std::int64_t* code, std::int64_t, bool may) {
    const std::int64_t offset = Destination::offset(*code);
    if (!may || again.test(offset)) return;
    *code = Destination::make(offset, true, false, false);
    if (offset != last) stored_.set_range(offset, offset + piece.length());
    last = offset;
  });
}

// Blocks and segments that more than one partition writes, and packed pieces.
void Linearizer::find_shared_destinations() {
  Bitmap seen[2] = {Bitmap(values_size_), Bitmap(b_size_)},
         shared[2] = {Bitmap(values_size_), Bitmap(b_size_)};
  std::vector<std::size_t> wanted;  // pieces: of a single partition only those that are packed
  const auto visit = [&](int t, auto&& action) {
    for (const auto& g : groups_) {
      const std::size_t num_pieces = g->pieces.size();
      wanted.clear();
      for (std::size_t p = 0; p < num_pieces; ++p)
        if (num_partitions_ > 1 || g->pieces[p].packed) wanted.push_back(p);
      if (wanted.empty()) continue;
      const std::int64_t end = std::min(g->first_chunk[t + 1] * kLanes, g->num_edges);
      for (std::int64_t at = g->first_chunk[t] * kLanes; at < end; ++at) {
        may_stop_at(at);
        std::int64_t* const codes = g->destinations.data() + at * static_cast<std::int64_t>(num_pieces);
        for (const std::size_t p : wanted)
          if (codes[p] != Destination::kSkip) action(*g, at, g->pieces[p], codes[p]);
      }
    }
  };
  // sole blocks are nobody else's, packed pieces have copies in any case
  const auto visit_open = [&](int t, auto&& action) {
    std::int64_t last[2] = {-1, -1};  // of the edge before
    visit(t, [&](const EdgeGroup&, std::int64_t, const Piece& piece, std::int64_t code) {
      const std::int64_t offset = Destination::offset(code);
      if (piece.packed || Destination::sole(code) || last[piece.segment] == offset) return;
      last[piece.segment] = offset;
      action(piece.segment, offset);
    });
  };
  for (int t = 0; t < num_partitions_ && num_partitions_ > 1; ++t) {
    visit_open(t, [&](bool segment, std::int64_t offset) {
      if (seen[segment].test(offset)) shared[segment].set(offset);
    });
    visit_open(t, [&](bool segment, std::int64_t offset) { seen[segment].set(offset); });
  }

  // a copy per partition for those
  std::unordered_map<std::int64_t, std::size_t> reduction_of[2];
  std::vector<std::vector<std::int32_t>> reduction_of_vertex(vertex_sets_.size());  // of packed pieces
  for (std::size_t set = 0; set < vertex_sets_.size(); ++set)
    if (vertex_sets_[set].packed)
      reduction_of_vertex[set].assign(static_cast<std::size_t>(vertex_sets_[set].estimate.rows), -1);
  std::vector<std::vector<Copy>> copies;
  for (int t = 0; t < num_partitions_; ++t) {
    std::int64_t arena_size = 0, last[2] = {-1, -1}, last_code[2] = {};  // of the edge before
    visit(t, [&](const EdgeGroup& g, std::int64_t at, const Piece& piece, std::int64_t& code) {
      const std::int64_t offset = Destination::offset(code);
      if (Destination::sole(code) || (!piece.packed && !shared[piece.segment].test(offset))) return;
      const bool transposed = Destination::transposed(code);
      if (last[piece.segment] == offset) {
        code = last_code[piece.segment] | (transposed ? 1 : 0);
        return;
      }
      std::size_t reduction_number = reductions_.size();
      std::int32_t row = -1;  // of a packed piece
      if (piece.packed) {
        row = g.input.vertex_rows.row(g.order[static_cast<std::size_t>(at)])[piece.slot];
        std::int32_t& known = reduction_of_vertex[g.vertex_sets[piece.slot]][static_cast<std::size_t>(row)];
        if (known >= 0)
          reduction_number = static_cast<std::size_t>(known);
        else
          known = static_cast<std::int32_t>(reduction_number);
      } else {
        reduction_number = reduction_of[piece.segment].try_emplace(offset, reduction_number).first->second;
      }
      if (reduction_number == reductions_.size()) {
        Reduction reduction;
        reduction.offset = offset;
        reduction.length = piece.length();
        reduction.packed_dim = piece.packed ? piece.rows : 0;
        reduction.segment = piece.segment;
        if (piece.packed)
          reduction.b_offset = vertex_sets_[g.vertex_sets[piece.slot]].offset[static_cast<std::size_t>(row)];
        reductions_.push_back(reduction);
        copies.emplace_back();
      }
      std::vector<Copy>& own = copies[reduction_number];
      if (own.empty() || own.back().partition != t) {
        const auto whole_vectors = [](std::int64_t size) {
          return (size + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
        };
        if (piece.packed) arena_size = whole_vectors(arena_size);
        own.push_back({t, arena_size});
        arena_size += piece.packed ? whole_vectors(piece.length()) : piece.length();
      }
      last[piece.segment] = offset;
      last_code[piece.segment] = Destination::make(own.back().offset, false, true, false);
      code = last_code[piece.segment] | (transposed ? 1 : 0);
    });
    arenas_[static_cast<std::size_t>(t)].resize(static_cast<std::size_t>(arena_size));
  }
  for (std::size_t i = 0; i < reductions_.size(); ++i) {
    reductions_[i].first_copy = static_cast<std::int64_t>(copies_.size());
    reductions_[i].num_copies = static_cast<std::int64_t>(copies[i].size());
    copies_.insert(copies_.end(), copies[i].begin(), copies[i].end());
  }
}

}  // namespace graphopt::vm
