// Bindings of the bytecode interpreter: Program and Linearizer.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "vm/lanes.h"
#include "vm/linearizer.h"
#include "vm/opcodes.h"
#include "vm/planes.h"
#include "vm/program.h"

namespace py = pybind11;
using graphopt::vm::EdgeGroupInput;
using graphopt::vm::kLanes;
using graphopt::vm::Linearizer;
using graphopt::vm::Program;
using graphopt::vm::ProgramPtr;
using graphopt::vm::View;

namespace {

// An array argument of exactly this type; other types are refused instead of copied where the data is shared.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

[[noreturn]] void fail(const std::string& what) { throw py::value_error(what); }

std::string shape_text(const py::array& a) {
  std::string text = "(";
  for (py::ssize_t i = 0; i < a.ndim(); ++i) text += (i ? ", " : "") + std::to_string(a.shape(i));
  return text + (a.ndim() == 1 ? ",)" : ")");
}

// View that keeps the array alive; a 1-d array is one column.
template <class T>
View<T> view(const py::array& a, const char* name, int ndim) {
  using Plain = std::remove_const_t<T>;
  if (!py::isinstance<Array<Plain>>(a))
    fail(std::string(name) + " must be a C-contiguous array of " +
         std::string(py::str(py::dtype::of<Plain>())) + ", got " + std::string(py::str(a.dtype())) +
         " of shape " + shape_text(a));
  if (a.ndim() != ndim)
    fail(std::string(name) + " has shape " + shape_text(a) + ", expected " + std::to_string(ndim) +
         " dimension(s)");
  if (!std::is_const_v<T> && !a.writeable()) fail(std::string(name) + " is read-only, but it is written to");
  View<T> v;
  v.data = static_cast<T*>(const_cast<void*>(a.data()));
  v.rows = a.shape(0);
  v.columns = ndim == 2 ? static_cast<int>(a.shape(1)) : 1;
  v.owner = std::shared_ptr<void>(new py::array(a), [](void* p) {
    const py::gil_scoped_acquire gil;
    delete static_cast<py::array*>(p);
  });
  return v;
}

template <class T>
std::vector<T> to_vector(const py::array_t<T, py::array::c_style | py::array::forcecast>& a) {
  return std::vector<T>(a.data(), a.data() + a.size());
}

template <class T>
using Cast = py::array_t<T, py::array::c_style | py::array::forcecast>;

py::array_t<double> run(const Program& program, const Cast<double>& inputs) {
  if (inputs.ndim() != 2 || inputs.shape(1) != program.num_inputs())
    fail("Program.run: inputs have shape " + shape_text(inputs) + ", expected (n, " +
         std::to_string(program.num_inputs()) + ")");
  if (program.uses_robust) fail("Program.run: this program needs a robust kernel; use a Linearizer");
  const py::ssize_t n = inputs.shape(0), num_out = program.num_outputs();
  py::array_t<double> outputs({n, num_out});
  const double* in = inputs.data();
  double* out = outputs.mutable_data();
  const py::gil_scoped_release release;
  graphopt::vm::run_rows(program, in, n, out);
  return outputs;
}

int add_edge_group(Linearizer& lin, ProgramPtr chi2, ProgramPtr linearize, ProgramPtr kernel,
                   std::vector<int> vertex_sets, const py::array& vertex_rows,
                   std::vector<int> parameter_sets, const py::array& parameter_rows,
                   const py::array& measurement, const py::array& information, const py::array& kernel_width,
                   const py::array& block_offset, const py::array& block_transposed) {
  if (!chi2 || !linearize) fail("add_edge_group: chi2_program and linearize_program must not be None");
  EdgeGroupInput input;
  input.chi2 = std::move(chi2);
  input.linearize = std::move(linearize);
  input.kernel = std::move(kernel);
  input.vertex_sets = std::move(vertex_sets);
  input.parameter_sets = std::move(parameter_sets);
  input.vertex_rows = view<const std::int32_t>(vertex_rows, "vertex_rows", 2);
  input.parameter_rows = view<const std::int32_t>(parameter_rows, "parameter_rows", 2);
  input.measurement = view<const double>(measurement, "measurement", 2);
  input.information = view<const double>(information, "information", 2);
  input.kernel_width = view<const double>(kernel_width, "kernel_width", 1);
  input.block_offset = view<const std::int64_t>(block_offset, "block_offset", 2);
  input.block_transposed = view<const bool>(block_transposed, "block_transposed", 2);
  const py::gil_scoped_release release;
  return lin.add_edge_group(std::move(input));
}

}  // namespace

void bind_vm(py::module_& m) {
  m.def(
      "vm_opcodes",
      [] {
        std::vector<std::tuple<std::string, int, int>> table;
        for (const auto& shape : graphopt::vm::kOpcodeShapes)
          table.emplace_back(shape.name, shape.num_destinations, shape.num_sources);
        return table;
      },
      "Instruction set as (name, number of destinations, number of sources), by opcode.");

  m.def(
      "set_plane",
      [](std::int64_t number, const py::array& pixels) {
        const View<const float> v = view<const float>(pixels, "pixels", 2);
        graphopt::vm::set_plane(number, {v.data, v.columns, static_cast<std::int32_t>(v.rows)}, v.owner);
      },
      py::arg("number"), py::arg("pixels"),
      "Pixels (height, width) float32, referenced, for SAMPLE of this number.");
  m.def("drop_plane", &graphopt::vm::drop_plane, py::arg("number"), "Forget the pixels of a number.");

  py::class_<Program, std::shared_ptr<Program>>(m, "Program", "A compiled function of float64 scalars.")
      .def(py::init([](const Cast<std::uint16_t>& code, const Cast<double>& constants,
                       const Cast<std::int32_t>& input_registers, const Cast<std::int32_t>& output_registers,
                       int num_registers) {
             return std::make_shared<Program>(to_vector<std::uint16_t>(code), to_vector<double>(constants),
                                              to_vector<std::int32_t>(input_registers),
                                              to_vector<std::int32_t>(output_registers), num_registers);
           }),
           py::arg("code"), py::arg("constants"), py::arg("input_registers"), py::arg("output_registers"),
           py::arg("num_registers"))
      .def_property_readonly("num_inputs", &Program::num_inputs)
      .def_property_readonly("num_outputs", &Program::num_outputs)
      .def_readonly("num_registers", &Program::num_registers)
      .def_property_readonly(
          "is_machine_code", [](const Program& one) { return one.machine_code != nullptr; },
          "It was compiled with the module; otherwise it is interpreted.")
      .def("run", &run, py::arg("inputs"), "Values (n, num_outputs) at inputs (n, num_inputs).");

  py::class_<Linearizer>(m, "Linearizer", "Evaluates all edges of a graph: chi2, H and b, oplus.")
      .def(py::init<>())
      .def(
          "add_vertex_set",
          [](Linearizer& lin, const py::array& estimate, std::shared_ptr<const Program> oplus,
             const Cast<std::int64_t>& offset) {
            if (!oplus) fail("add_vertex_set: oplus_program must not be None");
            View<double> v = view<double>(estimate, "estimate", 2);
            std::vector<std::int64_t> offsets = to_vector<std::int64_t>(offset);
            const py::gil_scoped_release release;
            return lin.add_vertex_set(std::move(v), std::move(oplus), std::move(offsets));
          },
          py::arg("estimate"), py::arg("oplus_program"), py::arg("offset"),
          "Add vertices; estimate (n, storage_dim) is referenced, offset (n,) is their place in dx or -1.")
      .def(
          "add_parameter_set",
          [](Linearizer& lin, const py::array& values) {
            View<const double> v = view<const double>(values, "values", 2);
            const py::gil_scoped_release release;
            return lin.add_parameter_set(std::move(v));
          },
          py::arg("values"), "Add shared constants (n, dim); the array is referenced.")
      .def("add_edge_group", &add_edge_group, py::arg("chi2_program"), py::arg("linearize_program"),
           py::arg("kernel_program"), py::arg("vertex_sets"), py::arg("vertex_rows"),
           py::arg("parameter_sets"), py::arg("parameter_rows"), py::arg("measurement"),
           py::arg("information"), py::arg("kernel_width"), py::arg("block_offset"),
           py::arg("block_transposed"), "Add edges of one type; returns the group's number.")
      .def(
          "set_edge_data",
          [](Linearizer& lin, int group, const py::array& measurement, const py::array& information,
             const py::array& kernel_width) {
            View<const double> z = view<const double>(measurement, "measurement", 2);
            View<const double> omega = view<const double>(information, "information", 2);
            View<const double> width = view<const double>(kernel_width, "kernel_width", 1);
            const py::gil_scoped_release release;
            lin.set_edge_data(group, std::move(z), std::move(omega), std::move(width));
          },
          py::arg("group"), py::arg("measurement"), py::arg("information"), py::arg("kernel_width"),
          "Replace the data of a group's edges (they are copied).")
      .def(
          "set_weights",
          [](Linearizer& lin, int group, const py::array& weight, double kernel_width) {
            const View<const double> v = view<const double>(weight, "weight", 1);
            const py::gil_scoped_release release;
            lin.set_weights(group, v, kernel_width);
          },
          py::arg("group"), py::arg("weight"), py::arg("kernel_width"),
          "Information of a group's edges becomes weight (m,) times the identity, kernels have this width.")
      .def(
          "choose_edges",
          [](Linearizer& lin, const std::vector<py::array>& masks) {
            std::vector<View<const bool>> views;
            for (const py::array& mask : masks) views.push_back(view<const bool>(mask, "mask", 1));
            const py::gil_scoped_release release;
            lin.choose_edges(views);
          },
          py::arg("masks"),
          "Let only the edges of these masks (per group, (m,) bool) take part; set_edge_data has to follow.")
      .def("prepare", &Linearizer::prepare, py::arg("values_size"), py::arg("b_size"),
           py::call_guard<py::gil_scoped_release>(), "Fix edge order, partition and destinations.")
      .def(
          "linearize",
          [](Linearizer& lin, const py::array& values, const py::array& b) {
            const View<double> v = view<double>(values, "values", 1), w = view<double>(b, "b", 1);
            const py::gil_scoped_release release;
            return lin.linearize(v.data, v.rows, w.data, w.rows);
          },
          py::arg("values"), py::arg("b"), "Overwrite H (values) and b; return the robust chi2.")
      .def("chi2", &Linearizer::chi2, py::call_guard<py::gil_scoped_release>(),
           "Robust chi2 at the estimates.")
      .def(
          "edge_chi2",
          [](Linearizer& lin, int group) {
            py::array_t<double> out(lin.group(group).num_rows);
            std::fill_n(out.mutable_data(), out.size(), std::nan(""));
            double* data = out.mutable_data();
            const py::gil_scoped_release release;
            lin.edge_chi2(group, data);
            return out;
          },
          py::arg("group"), "(m,) chi2 of each edge, not robustified.")
      .def(
          "oplus",
          [](Linearizer& lin, const py::array& dx) {
            const View<const double> v = view<const double>(dx, "dx", 1);
            const py::gil_scoped_release release;
            lin.oplus(v.data, v.rows);
          },
          py::arg("dx"), "Move all optimized vertices, in place.")
      .def("push", &Linearizer::push, py::call_guard<py::gil_scoped_release>(), "Save the estimates.")
      .def("pop", &Linearizer::pop, py::call_guard<py::gil_scoped_release>(),
           "Restore the estimates saved last.")
      .def("discard_top", &Linearizer::discard_top, py::call_guard<py::gil_scoped_release>(),
           "Forget the estimates saved last.")
      .def("first_non_finite", &Linearizer::first_non_finite, py::call_guard<py::gil_scoped_release>(),
           "(group, row) of the first edge whose residual, H or b is not finite, or None.");
}
