// The CPU module of one instruction set: `graphopt._cpu_baseline`, `_cpu_v3`, `_cpu_v4`.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "memory_errors.h"
#include "parallel/cores.h"
#include "parallel/thread_pool.h"
#include "parallel/timing.h"

namespace py = pybind11;

void bind_vm(py::module_& m);               // vm.cpp: bytecode interpreter, linearisation
void bind_linear(py::module_& m);           // linear.cpp: block linear algebra
void bind_small_loop(py::module_& m);       // small_loop.cpp: whole optimizations of small systems
void bind_problem_batch(py::module_& m);    // problem_batch.cpp: many small systems at once
void bind_trial(py::module_& m);            // trial.cpp: a damped step in one call
void bind_block_structure(py::module_& m);  // block_structure.cpp: pattern of H
void bind_edges(py::module_& m);            // edges.cpp: passes over all edges
void bind_edge_partition(py::module_& m);   // edge_partition.cpp: edges assigned to ranks
void bind_filling(py::module_& m);          // filling.cpp: columns of edges that follow from others
void bind_observations(py::module_& m);     // observations.cpp: cones of cameras, counts of inliers
void bind_dense(py::module_& m);            // dense.cpp: small dense systems
void bind_poses(py::module_& m);            // poses.cpp: quaternions and matrices
void bind_relaxation(py::module_& m);       // relaxation.cpp: the convex relaxation of pose graphs
void bind_stopping(py::module_& m);         // stopping.cpp: ending long calls early
void bind_rows(py::module_& m);             // rows.cpp: objects of the g2o interface
void bind_expressions(py::module_& m);      // expressions.cpp: batches of expressions
void bind_inertial(py::module_& m);         // inertial.cpp: preintegration of IMU samples
void bind_online(py::module_& m);           // online.cpp: problems that are kept solved

PYBIND11_MODULE(GRAPHOPT_CPU_MODULE, m) {
  m.doc() = "Arithmetic of graphopt on the CPU, compiled for one instruction set.";
  graphopt::name_memory_errors();
  m.def(
      "num_threads", [] { return graphopt::ThreadPool::instance().num_threads(); },
      "Threads that parallel loops use (GRAPHOPT_NUM_THREADS, or the cores this process may use: those of "
      "its affinity, at most those of its control groups' limit).");
  m.def(
      "set_num_threads",
      [](int n) {
        const py::gil_scoped_release unlocked;  // a region that runs may ask Python whether to stop
        graphopt::ThreadPool::instance().resize(n);
      },
      py::arg("num_threads"),
      "Change the number of threads; results are bitwise reproducible for a fixed number.");
  m.def("granted_cores", &graphopt::granted_cores, py::arg("root"), py::arg("membership"),
        "Cores that control groups grant; 0: no limit.");
  m.def(
      "give_way", [](double seconds) { graphopt::ThreadPool::instance().give_way(seconds); },
      py::arg("seconds"),
      "Leave parallel regions to their callers for so long, as on a crowded machine; the same results.");
  m.def(
      "num_taken_over", [] { return graphopt::ThreadPool::instance().num_taken_over(); },
      "Parts of teams that callers have taken over from workers without a core, so far.");
  m.def(
      "time_regions",
      [](int shares, bool is_team, int pause_microseconds, int repeats) {
        const py::gil_scoped_release unlocked;
        return graphopt::time_regions(shares, is_team, pause_microseconds, repeats);
      },
      py::arg("shares"), py::arg("is_team"), py::arg("pause_microseconds"), py::arg("repeats"),
      "Seconds that empty parallel regions take, each after a pause: what a region costs at least.");
  bind_stopping(m);
  bind_observations(m);
  bind_dense(m);
  bind_poses(m);
  bind_relaxation(m);
  bind_vm(m);
  bind_linear(m);
  bind_block_structure(m);
  bind_small_loop(m);
  bind_problem_batch(m);
  bind_trial(m);
  bind_rows(m);
  bind_edges(m);
  bind_edge_partition(m);
  bind_filling(m);
  bind_expressions(m);
  bind_inertial(m);
  bind_online(m);
}
