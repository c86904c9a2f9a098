// Bindings of batches of expressions.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "batch/fit.h"
#include "exact_arrays.h"
#include "parallel/call_mutex.h"
#include "parallel/thread_pool.h"

namespace py = pybind11;
using namespace graphopt;
using namespace graphopt::batch;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using Problem = std::tuple<std::size_t, std::size_t, std::string>;  // expression, position, what

constexpr int kParseShares = 64;

template <class Task>
void for_all(std::size_t count, Task task) {
  const int shares = static_cast<int>(std::min<std::size_t>(count, kParseShares));
  const auto share = [&](int t) {
    std::int64_t begin, end;
    partition(static_cast<std::int64_t>(count), t, shares, begin, end);
    for (std::int64_t k = begin; k < end; ++k) task(static_cast<std::size_t>(k));
  };
  if (shares > 0) ThreadPool::instance().run_shares(shares, std::ref(share));
}

// Where the rows of each expression are in the flat arrays.
struct Rows {
  std::vector<std::int64_t> first;  // row of the sets' arrays
  std::vector<Parameters> parameters;
};

class ExpressionSet {
 public:
  ExpressionSet(int num_columns, const std::vector<std::string>& names) : num_columns_(num_columns) {
    for (std::size_t k = 0; k < names.size(); ++k) names_[names[k]] = static_cast<int>(k);
  }

  // Errors by expression; those that have one are not added, nor is any if there is one.
  std::vector<Problem> add_texts(const std::vector<std::string>& texts) {
    const py::gil_scoped_release release;
    std::vector<std::unique_ptr<One>> added(texts.size());
    std::vector<std::optional<Problem>> problems(texts.size());
    for_all(texts.size(), [&](std::size_t k) {
      auto one = std::make_unique<One>();
      try {
        one->root = parse(texts[k], names_, num_columns_, one->graph);
        finish(*one);
        added[k] = std::move(one);
      } catch (const ParseError& error) {
        problems[k] = Problem{k, error.position, error.what()};
      } catch (const std::invalid_argument& error) {
        problems[k] = Problem{k, 0, error.what()};
      }
    });
    std::vector<Problem> result;
    for (const auto& problem : problems)
      if (problem) result.push_back(*problem);
    if (result.empty())
      for (auto& one : added) expressions_.push_back(std::move(one));
    return result;
  }

  // Nodes of one expression in topological order; `operands` are rows of these arrays, leaves have their
  // index there.
  void add_nodes(const Array<std::uint8_t>& ops, const Array<std::int32_t>& operands,
                 const Array<double>& values) {
    const py::ssize_t count = ops.size();
    if (count == 0 || operands.ndim() != 2 || operands.shape(0) != count || operands.shape(1) != 3 ||
        values.size() != count)
      throw py::value_error("add_nodes: expected arrays of shapes (n,), (n, 3), (n,) with n > 0");
    auto one = std::make_unique<One>();
    std::vector<Id> made;
    for (py::ssize_t k = 0; k < count; ++k)
      made.push_back(add_node(one->graph, ops.data()[k], operands.data() + 3 * k, values.data()[k], made));
    one->root = made.back();
    finish(*one);
    expressions_.push_back(std::move(one));
  }

  std::size_t size() const { return expressions_.size(); }

  Array<std::int32_t> num_parameters() const {
    Array<std::int32_t> result(static_cast<py::ssize_t>(size()));
    for (std::size_t k = 0; k < size(); ++k)
      result.mutable_data()[k] = expressions_[k]->graph.num_parameters();
    return result;
  }

  // values: (all sets, num_points) of the data's type, or sums (all sets,) of squares with a target.
  template <class T>
  void evaluate(const Array<T>& data, std::int64_t num_points, const std::optional<Array<T>>& target,
                const Array<double>& parameters, const Array<std::int64_t>& num_sets,
                const Array<std::int64_t>& strides, py::array out) {
    const Points<T> points = points_of(data, num_points, target);
    const Rows rows = rows_of(parameters, num_sets, strides);
    const std::int64_t total = rows.first.back();
    std::vector<T*> values;
    std::vector<double*> sums;
    if (target) {
      double* const to = data_of<double>(out, total);
      for (std::size_t e = 0; e < size(); ++e) sums.push_back(to + rows.first[e]);
    } else {
      T* const to = data_of<T>(out, total * num_points);
      for (std::size_t e = 0; e < size(); ++e) values.push_back(to + rows.first[e] * num_points);
    }
    const py::gil_scoped_release release;
    batch::evaluate<T>(codes(false), points, rows.parameters, target ? nullptr : values.data(),
                       target ? sums.data() : nullptr);
  }

  template <class T>
  void fit(const Array<T>& data, std::int64_t num_points, const std::optional<Array<T>>& target,
           const Array<double>& starts, const Array<std::int64_t>& num_sets,
           const Array<std::int64_t>& strides, int max_num_iterations,
           std::tuple<double, double, double> tolerances, Array<double> parameters, Array<double> sums,
           Array<std::int8_t> status, Array<std::int32_t> iterations) {
    const Points<T> points = points_of(data, num_points, target);
    const Rows rows = rows_of(starts, num_sets, strides);
    const std::int64_t total = rows.first.back();
    double* const to = data_of<double>(parameters, starts.size());
    FitOptions options;
    options.max_num_iterations = max_num_iterations;
    std::tie(options.function_tolerance, options.parameter_tolerance, options.gradient_tolerance) =
        tolerances;
    std::vector<FitResult> results;
    for (std::size_t e = 0; e < size(); ++e)
      results.push_back({to + (rows.parameters[e].values - starts.data()), rows.parameters[e].stride,
                         data_of<double>(sums, total) + rows.first[e],
                         data_of<std::int8_t>(status, total) + rows.first[e],
                         data_of<std::int32_t>(iterations, total) + rows.first[e]});
    const py::gil_scoped_release release;
    batch::fit<T>(codes(true), points, rows.parameters, options, results);
  }

  // What shaders/batch.comp takes: code (n, 4), table (expressions, 8), scalars, registers by expression.
  template <class T>
  py::tuple pack(const Array<T>& like, const Array<double>& parameters, const Array<std::int64_t>& num_sets,
                 const Array<std::int64_t>& strides) {
    const Rows rows = rows_of(parameters, num_sets, strides);
    const std::vector<Compiled>& all = unlocked_codes(false);
    std::vector<std::uint32_t> words, table;
    std::vector<T> scalars;
    std::vector<std::int32_t> registers;
    const Points<T> none{like.data(), nullptr, 0, 0, num_columns_};
    for (std::size_t e = 0; e < size(); ++e) {
      const Compiled& code = all[e];
      const Parameters& sets = rows.parameters[e];
      const std::uint32_t begin = number(words.size() / 4), both = add_code(code.by_data, words),
                          end = add_code(code.by_both, words);
      const Operand output = code.outputs[0];
      table.insert(table.end(), {begin, both, end, output.index | (output.is_scalar ? 1u << 16 : 0u),
                                 number(static_cast<std::size_t>(code.num_scalars())), number(scalars.size()),
                                 number(static_cast<std::size_t>(rows.first[e])),
                                 number(static_cast<std::size_t>(sets.num_sets))});
      registers.push_back(code.num_registers);
      Runner<T> runner(code, none);
      for (std::int64_t set = 0; set < sets.num_sets; set += kSets) {
        const auto count = std::min<std::int64_t>(kSets, sets.num_sets - set);
        runner.set_parameters(sets.values + set * sets.stride, sets.stride, static_cast<int>(count));
        scalars.insert(scalars.end(), runner.scalars(), runner.scalars() + count * code.num_scalars());
      }
    }
    return py::make_tuple(array_of(words), array_of(table), array_of(scalars), array_of(registers));
  }

  // What shaders/include/batch_fit.glsl takes: code (n, 4), table (expressions, 12), constants, words; by
  // expression the registers, scalars and parameters.
  template <class T>
  py::tuple pack_fit(const Array<T>&) {
    const std::vector<Compiled>& all = unlocked_codes(true);
    std::vector<std::uint32_t> code, table, words;
    std::vector<T> constants;
    std::vector<std::int32_t> sizes;
    for (const Compiled& one : all) {
      const std::uint32_t begin = number(code.size() / 4), data = add_code(one.by_parameter, code),
                          both = add_code(one.by_data, code), end = add_code(one.by_both, code);
      const std::uint32_t first = number(constants.size()), shared = number(words.size());
      for (const double value : one.constants) constants.push_back(static_cast<T>(value));
      words.insert(words.end(), one.shared.begin(), one.shared.end());
      table.insert(table.end(), {begin, data, both, end, number(one.constants.size()),
                                 number(one.shared.size()), first, shared, number(words.size()), 0, 0, 0});
      for (const Operand& output : one.outputs)
        words.push_back(output.index | (output.is_scalar ? 1u << 16 : 0u));
      sizes.insert(sizes.end(), {std::max(one.num_registers, one.num_parameter_registers), one.num_scalars(),
                                 one.num_parameters});
    }
    return py::make_tuple(array_of(code), array_of(table), array_of(constants), array_of(words),
                          array_of(sizes));
  }

 private:
  static std::uint32_t number(std::size_t x) { return static_cast<std::uint32_t>(x); }

  // Instructions as the device has them; where they end.
  static std::uint32_t add_code(const std::vector<Instruction>& code, std::vector<std::uint32_t>& words) {
    for (const Instruction& one : code) {
      words.push_back(number(static_cast<std::size_t>(one.op)) | std::uint32_t{one.scalars} << 8 |
                      std::uint32_t{one.destination} << 16);
      words.push_back(one.operands[0] | std::uint32_t{one.operands[1]} << 16);
      words.push_back(one.operands[2]);
      words.push_back(0);
    }
    return number(words.size() / 4);
  }

  template <class Value>
  static Array<Value> array_of(const std::vector<Value>& values) {
    return graphopt::bindings::copied(values);
  }

  struct One {
    Graph graph;
    Id root = 0;
  };

  void finish(One& one) { compile(one.graph, {one.root}, num_columns_, one.graph.num_parameters()); }

  Id add_node(Graph& graph, int op, const std::int32_t* operands, double value,
              const std::vector<Id>& made) const {
    const auto index = [&](int limit) {
      if (operands[0] < 0 || operands[0] >= limit)
        throw py::value_error("add_nodes: an index is out of range");
      return operands[0];
    };
    if (op > static_cast<int>(Op::SELECT)) throw py::value_error("add_nodes: unknown operation");
    switch (const Op known = static_cast<Op>(op)) {
      case Op::CONST:
        return graph.constant(value);
      case Op::DATA:
        return graph.data(index(num_columns_));
      case Op::PARAMETER:
        return graph.parameter(index(65536));
      default: {
        Id of[3] = {0, 0, 0};
        for (int k = 0; k < arity(known); ++k) {
          if (operands[k] < 0 || operands[k] >= static_cast<std::int32_t>(made.size()))
            throw py::value_error("add_nodes: an operand comes after its operation");
          of[k] = made[static_cast<std::size_t>(operands[k])];
        }
        return graph.make(known, of[0], of[1], of[2]);
      }
    }
  }

  template <class T>
  Points<T> points_of(const Array<T>& data, std::int64_t num_points,
                      const std::optional<Array<T>>& target) const {
    Points<T> points;
    if (data.ndim() != 2 || data.shape(0) != num_columns_ || num_points < 0 || num_points > data.shape(1) ||
        data.shape(1) * static_cast<py::ssize_t>(sizeof(T)) % 64 != 0 ||
        reinterpret_cast<std::uintptr_t>(data.data()) % 64 != 0)
      throw py::value_error("data must be an aligned array of shape (num_columns, padded points)");
    if (target && target->size() < num_points) throw py::value_error("target is too short");
    points.data = data.data();
    points.target = target ? target->data() : nullptr;
    points.num_points = num_points;
    points.stride = data.shape(1);
    points.num_columns = num_columns_;
    return points;
  }

  Rows rows_of(const Array<double>& values, const Array<std::int64_t>& num_sets,
               const Array<std::int64_t>& strides) const {
    if (num_sets.size() != static_cast<py::ssize_t>(size()) || strides.size() != num_sets.size())
      throw py::value_error("num_sets and strides must have an entry per expression");
    Rows rows;
    std::int64_t row = 0, at = 0;
    for (std::size_t e = 0; e < size(); ++e) {
      const std::int64_t sets = num_sets.data()[e], stride = strides.data()[e];
      if (sets < 0 || stride < expressions_[e]->graph.num_parameters())
        throw py::value_error("expression " + std::to_string(e) + " has more parameters than its sets");
      rows.first.push_back(row);
      rows.parameters.push_back({values.data() + at, sets, stride});
      row += sets;
      at += sets * stride;
    }
    if (at != values.size()) throw py::value_error("parameters have the wrong length");
    rows.first.push_back(row);
    return rows;
  }

  template <class T>
  static T* data_of(py::array& array, std::int64_t size) {
    if (!py::isinstance<Array<T>>(array) || array.size() != size || !array.writeable())
      throw py::value_error("a result array has the wrong type or size");
    return static_cast<T*>(array.mutable_data());
  }

  const std::vector<Compiled>& unlocked_codes(bool with_derivatives) {
    const py::gil_scoped_release release;
    return codes(with_derivatives);
  }

  // Made when they are first needed, by all threads; without the GIL.
  const std::vector<Compiled>& codes(bool with_derivatives) {
    const std::lock_guard<CallMutex> lock(mutex_);
    std::vector<Compiled>& result = with_derivatives ? with_derivatives_ : values_;
    const std::size_t first = result.size();
    result.resize(size());
    for_all(size() - first, [&](std::size_t k) {
      One& one = *expressions_[first + k];
      const int n = one.graph.num_parameters();
      std::vector<Id> outputs{one.root};
      if (with_derivatives) {
        const std::vector<Id> slopes = one.graph.derivatives(one.root, n);
        outputs.insert(outputs.end(), slopes.begin(), slopes.end());
      }
      result[first + k] = compile(one.graph, outputs, num_columns_, n);
    });
    return result;
  }

  const int num_columns_;
  CallMutex mutex_;  // of the codes
  std::unordered_map<std::string, int> names_;
  std::vector<std::unique_ptr<One>> expressions_;
  std::vector<Compiled> values_, with_derivatives_;
};

template <class T>
void bind_type(py::class_<ExpressionSet>& set) {
  set.def("evaluate", &ExpressionSet::evaluate<T>, py::arg("data").noconvert(), py::arg("num_points"),
          py::arg("target").noconvert(), py::arg("parameters").noconvert(), py::arg("num_sets").noconvert(),
          py::arg("strides").noconvert(), py::arg("out"));
  set.def("pack", &ExpressionSet::pack<T>, py::arg("like").noconvert(), py::arg("parameters").noconvert(),
          py::arg("num_sets").noconvert(), py::arg("strides").noconvert());
  set.def("pack_fit", &ExpressionSet::pack_fit<T>, py::arg("like").noconvert());
  set.def("fit", &ExpressionSet::fit<T>, py::arg("data").noconvert(), py::arg("num_points"),
          py::arg("target").noconvert(), py::arg("starts").noconvert(), py::arg("num_sets").noconvert(),
          py::arg("strides").noconvert(), py::arg("max_num_iterations"), py::arg("tolerances"),
          py::arg("parameters").noconvert(), py::arg("sums").noconvert(), py::arg("status").noconvert(),
          py::arg("iterations").noconvert());
}

}  // namespace

void bind_expressions(py::module_& m) {
  py::class_<ExpressionSet> set(m, "ExpressionSet", "Many expressions of the columns of one matrix.");
  set.def(py::init<int, const std::vector<std::string>&>(), py::arg("num_columns"), py::arg("names"));
  set.def("__len__", &ExpressionSet::size);
  set.def("add_texts", &ExpressionSet::add_texts, py::arg("texts"));
  set.def("add_nodes", &ExpressionSet::add_nodes, py::arg("ops").noconvert(), py::arg("operands").noconvert(),
          py::arg("values").noconvert());
  set.def("num_parameters", &ExpressionSet::num_parameters);
  bind_type<double>(set);
  bind_type<float>(set);
}
