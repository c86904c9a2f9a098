#include "device_edges.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "error.h"

#ifndef GRAPHOPT_HAS_VULKAN

namespace graphopt::embed {

std::unique_ptr<DeviceEdges> make_device_edges(const std::string&, bool, Graph&, Problem&) {
  throw Error(
      GRAPHOPT_DEVICE_ERROR,
      "This library was built without Vulkan. Install its headers (Debian: apt-get install libvulkan-dev) "
      "and build it again, or use device 'cpu'.");
}

}  // namespace graphopt::embed

#else

#include "vulkan/program.h"

namespace graphopt::embed {
namespace {

using namespace vulkan;
using BufferPtr = std::shared_ptr<Buffer>;

constexpr std::int64_t kEdgeBlock = 64;  // edges of a block of rows and data, and of a workgroup
constexpr std::uint32_t kTransposed = 1u << 31;
constexpr double kTimeout = 600.0;  // [s]
constexpr const char* kGather = "gather_blocks.spv";

std::string words(std::initializer_list<std::int64_t> numbers) {
  std::string bytes;
  for (const std::int64_t number : numbers) {
    const auto word = static_cast<std::uint32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return bytes;
}

std::int64_t workgroups(std::int64_t invocations) { return (invocations + kEdgeBlock - 1) / kEdgeBlock; }

// Column k of row e of an array of `num` numbers per edge, in blocks of 64 edges.
std::size_t blocked(std::int64_t e, std::int64_t num, std::int64_t k) {
  return static_cast<std::size_t>((e / kEdgeBlock) * num * kEdgeBlock + k * kEdgeBlock + e % kEdgeBlock);
}

bool is_usable(const PhysicalDevice& device) {
  return device.has_compute_queue && device.float64 && device.buffer_address && device.timeline_semaphore;
}

int rank(const PhysicalDevice& device) {
  const std::array<const char*, 4> kinds{"discrete", "integrated", "virtual", "cpu"};
  const auto found = std::find(kinds.begin(), kinds.end(), device.kind);
  return static_cast<int>(found - kinds.begin());
}

std::size_t find_device(const std::vector<PhysicalDevice>& devices, const std::string& asked) {
  const std::string which = asked.size() > 7 ? asked.substr(7) : "";  // behind "vulkan:"
  std::string known;
  std::size_t best = devices.size();
  for (std::size_t k = 0; k < devices.size(); ++k) {
    known += (known.empty() ? "" : ", ") + std::to_string(k) + " " + devices[k].name;
    const bool is_meant = which.empty() || which == std::to_string(k) ||
                          (which.size() > 1 && devices[k].name.find(which) != std::string::npos);
    if (is_meant && is_usable(devices[k]) &&
        (best == devices.size() || rank(devices[k]) < rank(devices[best])))
      best = k;
  }
  if (best == devices.size())
    throw Error(GRAPHOPT_DEVICE_ERROR,
                "No Vulkan device '" + asked + "' that has float64 and buffer addresses. There are: " +
                    (known.empty() ? "none" : known) + ". Use one of these, or 'cpu'.");
  return best;
}

// A device that a graph has opened.
struct Opened : OpenDevice {
  std::shared_ptr<Device> device;
};

std::shared_ptr<Device> open(const std::string& asked, bool validation, Graph& graph) {
  if (graph.device != nullptr && graph.device->asked == asked && graph.device->validation == validation)
    return std::static_pointer_cast<Opened>(graph.device)->device;
  const auto instance = Instance::get(validation);
  DeviceOptions options;
  options.validation = validation;
  auto opened = std::make_shared<Opened>();
  opened->asked = asked;
  opened->validation = validation;
  opened->device = std::make_shared<Device>(find_device(instance->devices(), asked), options);
  graph.device = opened;
  return opened->device;
}

// Sums of the blocks of one shape.
struct Shape {
  std::int64_t rows, columns, packed;
  bool operator<(const Shape& other) const {
    return std::tie(rows, columns, packed) < std::tie(other.rows, other.columns, other.packed);
  }
};

class Edges final : public DeviceEdges {
 public:
  Edges(std::shared_ptr<Device> device, const Graph& graph, Problem& problem)
      : device_(std::move(device)), graph_(graph), problem_(problem) {
    place_records();
    for (std::size_t g = 0; g < problem_.groups.size(); ++g) upload_group(problem_.groups[g]);
    if (num_contributions_ >= std::int64_t{kTransposed})
      throw Error(GRAPHOPT_DEVICE_ERROR, "The edges add " + std::to_string(num_contributions_) +
                                             " numbers to H, more than the device's 2^31. Use device 'cpu'.");
    contributions_ = allocate(static_cast<std::uint64_t>(num_contributions_) * sizeof(double));
    partial_ = allocate(static_cast<std::uint64_t>(num_partials_) * sizeof(double));
    num_equations_ = problem_.pattern->values_size() + problem_.dim();
    equations_ = allocate(static_cast<std::uint64_t>(num_equations_) * sizeof(double));
    sums_.resize(static_cast<std::size_t>(num_partials_));
    upload_parameters();
    list_terms();
    chi2_program_ = record(false);
    linearize_program_ = record(true);
    complain();
  }

  std::string name() const override { return device_->physical().name; }

  double linearize(double* values, std::int64_t values_size, double* b, std::int64_t b_size) override {
    const std::uint64_t size = static_cast<std::uint64_t>(values_size) * sizeof(double);
    return run(linearize_program_, {{equations_, 0, size, reinterpret_cast<char*>(values)},
                                    {equations_, size, static_cast<std::uint64_t>(b_size) * sizeof(double),
                                     reinterpret_cast<char*>(b)}});
  }
  double chi2() override { return run(chi2_program_, {}); }
  void oplus(const double* dx, std::int64_t size) override { problem_.linearizer.oplus(dx, size); }
  void push() override { problem_.linearizer.push(); }
  void pop() override { problem_.linearizer.pop(); }
  void discard_top() override { problem_.linearizer.discard_top(); }

 private:
  struct GroupOnDevice {
    const Group* group;
    BufferPtr rows, data;
    std::int64_t first_contribution, first_partial, num_contributed;  // the last of one edge
  };

  BufferPtr allocate(std::uint64_t size) {
    return device_->memory().allocate(std::max<std::uint64_t>(size, 16), Usage::device);
  }

  template <class T>
  BufferPtr uploaded(const std::vector<T>& values) {
    BufferPtr buffer = allocate(values.size() * sizeof(T));
    if (!values.empty())
      device_->transfers().upload(buffer, 0, reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(T));
    return buffer;
  }

  // All records follow each other: estimates by vertex set, then parameters.
  void place_records() {
    std::int64_t at = 0;
    for (std::size_t s = 0; s < graph_.vertex_sets.size(); ++s) {
      first_record_.push_back(at);
      at += static_cast<std::int64_t>(problem_.estimates[s].size());
    }
    for (const ParameterSet& set : graph_.parameter_sets) {
      first_parameter_.push_back(at);
      at += static_cast<std::int64_t>(set.values.size());
    }
    if (at >= std::int64_t{1} << 32)
      throw Error(GRAPHOPT_DEVICE_ERROR, "The estimates have " + std::to_string(at) +
                                             " numbers, more than the device's 2^32. Use device 'cpu'.");
    records_ = allocate(static_cast<std::uint64_t>(at) * sizeof(double));
  }

  void upload_parameters() {
    for (std::size_t s = 0; s < graph_.parameter_sets.size(); ++s)
      send_records(first_parameter_[s], graph_.parameter_sets[s].values);
  }

  void send_records(std::int64_t first, const std::vector<double>& values) {
    device_->transfers().upload(records_, static_cast<std::uint64_t>(first) * sizeof(double),
                                reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  }

  void upload_group(const Group& group) {
    const EdgeType& type = *group.kind.type;
    const std::size_t arity = group.arity(), num_parameters = group.parameter_sets.size();
    const auto num_rows = static_cast<std::int64_t>(arity + num_parameters);
    const std::int64_t num_data = type.measurement_dim + type.information_dim() + 1;
    const std::int64_t size = workgroups(group.size) * kEdgeBlock;
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(size * num_rows), 0);
    std::vector<double> data(static_cast<std::size_t>(size * num_data), 0.0);
    for (std::int64_t e = 0; e < group.size; ++e) {
      const auto at = static_cast<std::size_t>(e);
      for (std::size_t slot = 0; slot < arity; ++slot)
        rows[blocked(e, num_rows, static_cast<std::int64_t>(slot))] = static_cast<std::uint32_t>(
            first_record_[static_cast<std::size_t>(group.vertex_sets[slot])] +
            std::int64_t{group.vertex_rows[at * arity + slot]} * type.vertices[slot]->working_dim);
      for (std::size_t slot = 0; slot < num_parameters; ++slot)
        rows[blocked(e, num_rows, static_cast<std::int64_t>(arity + slot))] = static_cast<std::uint32_t>(
            first_parameter_[static_cast<std::size_t>(group.parameter_sets[slot])] +
            std::int64_t{group.parameter_rows[at * num_parameters + slot]} *
                type.parameters[slot]->storage_dim);
      std::int64_t column = 0;
      const auto put = [&](const std::vector<double>& from, int dim) {
        for (int k = 0; k < dim; ++k)
          data[blocked(e, num_data, column++)] =
              from[at * static_cast<std::size_t>(dim) + static_cast<std::size_t>(k)];
      };
      put(group.measurement, type.measurement_dim);
      put(group.information, type.information_dim());
      put(group.width, 1);
    }
    const std::int64_t num_contributed = type.linearize->num_outputs() - 1;
    groups_.push_back(
        {&group, uploaded(rows), uploaded(data), num_contributions_, num_partials_, num_contributed});
    num_contributions_ += group.size * num_contributed;
    num_partials_ += workgroups(group.size);
  }

  // Which contributions each block of H and each part of b sums, blocks of one shape together.
  void list_terms() {
    const BlockPattern& pattern = *problem_.pattern;
    const std::int64_t num_stored = pattern.num_stored_blocks(),
                       num_blocks = num_stored + pattern.num_blocks();
    std::vector<Shape> shapes(static_cast<std::size_t>(num_blocks));
    std::vector<std::int64_t> places(static_cast<std::size_t>(num_blocks));
    for (int column = 0; column < pattern.num_blocks(); ++column) {
      for (std::int64_t k = pattern.column_begin(column); k < pattern.column_end(column); ++k) {
        const int row = pattern.row(k);
        shapes[static_cast<std::size_t>(k)] = {pattern.block_dim(row), pattern.block_dim(column),
                                               row == column};
        places[static_cast<std::size_t>(k)] = pattern.value_offset(k);
      }
      const auto of_b = static_cast<std::size_t>(num_stored + column);
      shapes[of_b] = {pattern.block_dim(column), 1, 0};
      places[of_b] = pattern.values_size() + pattern.offset(column);
    }
    std::vector<std::int64_t> order(static_cast<std::size_t>(num_blocks)), number(order.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return shapes[static_cast<std::size_t>(a)] < shapes[static_cast<std::size_t>(b)];
    });
    std::vector<std::uint32_t> place;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto block = static_cast<std::size_t>(order[k]);
      number[block] = static_cast<std::int64_t>(k);
      place.push_back(static_cast<std::uint32_t>(places[block]));
      const bool is_new = k == 0 || shapes[static_cast<std::size_t>(order[k - 1])] < shapes[block];
      if (is_new) parts_.push_back({shapes[block], static_cast<std::int64_t>(k), 0});
      ++parts_.back().count;
    }
    std::vector<std::uint32_t> first(order.size() + 1, 0);
    for_each_term([&](std::int64_t block, std::uint32_t) {
      ++first[static_cast<std::size_t>(number[static_cast<std::size_t>(block)]) + 1];
    });
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1), terms(first.back());
    for_each_term([&](std::int64_t block, std::uint32_t term) {
      terms[next[static_cast<std::size_t>(number[static_cast<std::size_t>(block)])]++] = term;
    });
    first_ = uploaded(first);
    terms_ = uploaded(terms);
    place_ = uploaded(place);
  }

  // visit(block, term): stored blocks by number, then those of b; edges in order.
  template <class Visit>
  void for_each_term(Visit visit) const {
    const BlockPattern& pattern = *problem_.pattern;
    const auto stored_block = [&](std::int64_t offset) {
      const auto& offsets = pattern.value_offsets();
      return static_cast<std::int64_t>(std::upper_bound(offsets.begin(), offsets.end(), offset) -
                                       offsets.begin()) -
             1;
    };
    for (const GroupOnDevice& one : groups_) {
      const Group& group = *one.group;
      const EdgeType& type = *group.kind.type;
      const std::size_t arity = group.arity(), num_pairs = arity * (arity + 1) / 2;
      for (std::size_t e = 0; e < static_cast<std::size_t>(group.size); ++e) {
        std::int64_t at = one.first_contribution + static_cast<std::int64_t>(e) * one.num_contributed;
        std::size_t pair = e * num_pairs;
        for (std::size_t i = 0; i < arity; ++i)
          for (std::size_t j = i; j < arity; ++j, ++pair) {
            if (group.block_offset[pair] >= 0)
              visit(stored_block(group.block_offset[pair]),
                    static_cast<std::uint32_t>(at) | (group.block_transposed[pair] ? kTransposed : 0));
            const std::int64_t rows = type.vertices[i]->tangent_dim, columns = type.vertices[j]->tangent_dim;
            at += i == j ? rows * (rows + 1) / 2 : rows * columns;
          }
        for (std::size_t i = 0; i < arity; ++i) {
          const std::int64_t block = problem_.block({group.vertex_sets[i], group.vertex_rows[e * arity + i]});
          if (block >= 0) visit(pattern.num_stored_blocks() + block, static_cast<std::uint32_t>(at));
          at += type.vertices[i]->tangent_dim;
        }
      }
    }
  }

  std::shared_ptr<Kernel> kernel(const std::string& file, int num_params, int robust) {
    if (file.empty())
      throw Error(
          GRAPHOPT_DEVICE_ERROR,
          "The types have no SPIR-V. Load those that `graphopt export PROBLEM -o DIR --device vulkan` writes "
          "(PROBLEM is 'builtin' for every built-in type): graphopt_graph_new(\"DIR/types.txt\", &graph).");
    auto& found = kernels_[{file, robust}];
    if (found == nullptr)
      found = std::make_shared<Kernel>(
          device_, file, graph_.types->file(file), Access::address, 5,
          4 * static_cast<std::uint32_t>(num_params),
          std::map<std::uint32_t, std::uint32_t>{{0, static_cast<std::uint32_t>(kEdgeBlock)},
                                                 {1, static_cast<std::uint32_t>(robust)}});
    return found;
  }

  std::shared_ptr<Program> record(bool linearizes) {
    Recorder recorder(device_, linearizes ? "linearize" : "chi2");
    for (const GroupOnDevice& one : groups_) {
      const EdgeType& type = *one.group->kind.type;
      recorder.dispatch(
          kernel(linearizes ? type.linearize_kernel : type.chi2_kernel, 3, one.group->kind.kernel),
          {records_, one.rows, one.data, contributions_, partial_},
          words({one.group->size, one.first_contribution, one.first_partial}),
          static_cast<std::uint64_t>(workgroups(one.group->size)));
    }
    recorder.barrier();
    if (linearizes)
      for (const Part& part : parts_)
        recorder.dispatch(
            kernel(kGather, 5, 0), {first_, terms_, place_, contributions_, equations_},
            words({part.first, part.count, part.shape.rows, part.shape.columns, part.shape.packed}),
            static_cast<std::uint64_t>(workgroups(part.count * part.shape.rows * part.shape.columns)));
    recorder.barrier();
    return recorder.finish();
  }

  double run(const std::shared_ptr<Program>& program, std::vector<Download> wanted) {
    for (std::size_t s = 0; s < problem_.estimates.size(); ++s)
      if (!problem_.estimates[s].empty()) send_records(first_record_[s], problem_.estimates[s]);
    Ticket ticket(program);
    ticket.wait(kTimeout);
    wanted.push_back({partial_, 0, sums_.size() * sizeof(double), reinterpret_cast<char*>(sums_.data())});
    if (!device_->transfers().download(wanted, kTimeout))
      throw Error(GRAPHOPT_DEVICE_ERROR, "The device " + name() + " did not answer in time.");
    complain();
    return std::accumulate(sums_.begin(), sums_.end(), 0.0);
  }

  // What the validation layer says is an error.
  void complain() {
    const std::vector<std::string> messages = device_->instance().messages();
    if (messages.empty()) return;
    device_->instance().clear_messages();
    throw Error(GRAPHOPT_DEVICE_ERROR, "Vulkan validation: " + messages.front());
  }

  struct Part {
    Shape shape;
    std::int64_t first, count;
  };

  std::shared_ptr<Device> device_;
  const Graph& graph_;
  Problem& problem_;
  std::vector<std::int64_t> first_record_, first_parameter_;
  std::vector<GroupOnDevice> groups_;
  std::vector<Part> parts_;
  std::int64_t num_contributions_ = 0, num_partials_ = 0, num_equations_ = 0;
  BufferPtr records_, contributions_, partial_, equations_, first_, terms_, place_;
  std::map<std::pair<std::string, int>, std::shared_ptr<Kernel> > kernels_;
  std::shared_ptr<Program> chi2_program_, linearize_program_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<DeviceEdges> make_device_edges(const std::string& device, bool validation, Graph& graph,
                                               Problem& problem) {
  return std::make_unique<Edges>(open(device, validation, graph), graph, problem);
}

}  // namespace graphopt::embed

#endif
