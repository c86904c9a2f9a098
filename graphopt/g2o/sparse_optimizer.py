"""`SparseOptimizer`: the graph with an optimization algorithm.

    initialize_optimization()   chooses the active edges and numbers their vertices
    optimize(n)                 runs the algorithm of `set_algorithm` on them; the objects have the result

Semantics are g2o's: `optimize` returns the number of iterations it did, 0 if the first linear system cannot
be solved, -1 if nothing is active. All native code runs without the GIL.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError
from graphopt.g2o import devices
from graphopt.g2o.actions import HyperGraphAction
from graphopt.g2o.edges import Edge
from graphopt.g2o.optimizable_graph import OptimizableGraph, _add
from graphopt.g2o.problem import Problem
from graphopt.g2o.python_edges import PythonEdgeSolver, has_planes, needs_python
from graphopt.g2o.solvers import OptimizationAlgorithm
from graphopt.g2o.sparse_block_matrix import SparseBlockMatrixX
from graphopt.g2o.statistics import G2OBatchStatistics, StatisticsRecorder
from graphopt.graph import Graph
from graphopt.graph.components import connected_components
from graphopt.optimizer.run import run
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Iteration, Summary, TerminationType
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.registry import SolverOptions
from graphopt.solver.reuse import prepared_solver

_FAILURES = (TerminationType.LINEAR_SOLVER_FAILURE, TerminationType.NON_FINITE)


class SparseOptimizer(OptimizableGraph):
    """A graph that can be optimized. May be subclassed; call `super().__init__()`."""

    _is_optimizer = True

    def __init__(self) -> None:
        super().__init__()
        self._algorithm: OptimizationAlgorithm | None = None
        self._verbose = False
        self._force_stop: Any = False
        self._action_stop = False
        self._passes_once = False
        self._problem: Problem | None = None
        self._solver: Any = None
        self._numbered: Any = None
        self._error_actions: dict[Any, None] = {}
        self._compute_statistics = False
        self._statistics: list[G2OBatchStatistics] = []
        self.summary: Summary | None = None
        """What the last `optimize` did, in detail; None before the first."""

    # ---------------------------------------------------------------- set-up

    def set_algorithm(self, algorithm: OptimizationAlgorithm) -> None:
        """Set the optimization algorithm."""
        if not isinstance(algorithm, OptimizationAlgorithm):
            raise TypeError(f"set_algorithm takes an OptimizationAlgorithm*, got {algorithm!r}.")
        self._algorithm = algorithm
        algorithm.solver().set_optimizer(self)

    def algorithm(self) -> OptimizationAlgorithm | None:
        """The optimization algorithm, None before it is set."""
        return self._algorithm

    solver = algorithm

    def set_verbose(self, verbose: bool) -> None:
        """Print one line per iteration to stderr."""
        self._verbose = bool(verbose)

    def verbose(self) -> bool:
        """What `set_verbose` set."""
        return self._verbose

    def set_force_stop_flag(self, flag: Any) -> None:
        """A bool, or a `Flag` that another thread may set: stop before the next trial step."""
        self._force_stop = flag

    def force_stop_flag(self) -> Any:
        """What `set_force_stop_flag` set."""
        return self._force_stop

    def terminate(self) -> bool:
        """The stop flag is set."""
        flag = self._force_stop
        if flag is not False and getattr(flag, "value", flag):
            return True
        return self._action_stop

    def is_set(self) -> bool:
        """What our optimizer asks before each iteration and each trial."""
        if self._passes_once:  # g2o looks at the flag before it runs the actions of the iteration to come
            self._passes_once = False
            return False
        return self.terminate()

    def set_compute_batch_statistics(self, value: bool) -> None:
        """Keep statistics of each iteration."""
        self._compute_statistics = bool(value)

    def compute_batch_statistics(self) -> bool:
        """What `set_compute_batch_statistics` set."""
        return self._compute_statistics

    def batch_statistics(self) -> list[G2OBatchStatistics]:
        """Statistics of the iterations of the last `optimize`."""
        return list(self._statistics)

    def add_compute_error_action(self, action: HyperGraphAction) -> bool:
        """Call an action whenever all active errors are computed by `compute_active_errors`."""
        return _add(self._error_actions, action)

    def remove_compute_error_action(self, action: HyperGraphAction) -> bool:
        """Call it no more; False if it was not there."""
        return self._error_actions.pop(action, self) is None

    # ---------------------------------------------------------------- active part

    def initialize_optimization(
        self, selection: Any = 0, level: int = 0, *, vset: Any = None, eset: Any = None
    ) -> bool:
        """Choose the active part; False if it is empty. Runs the actions with iteration -1.

        `initialize_optimization(level=0)`: all edges of a level, of all levels if negative. With a set of
        vertices (also `vset`): the edges between them. With a set of edges (also `eset`): exactly these.
        """
        selection = selection if vset is None else vset
        selection = selection if eset is None else eset
        if not self._edges:
            return self._choose_nothing()
        self.pre_iteration(-1)
        problem = self._present_problem()
        if isinstance(selection, (int, np.integer)):
            problem.choose_level(int(selection) or level)
        else:
            chosen = list(selection)
            if chosen and isinstance(chosen[0], Edge):
                problem.choose_edges(chosen)
            else:
                problem.choose_vertices(chosen, level)
        self._numbered = None
        self.post_iteration(-1)
        return bool(problem.selection and problem.selection.num_active_edges)

    def _choose_nothing(self) -> bool:
        """Of a graph without edges nothing is active."""
        self._present_problem().choose_edges([])
        self._numbered = None
        return False

    def update_initialization(self, vset: Iterable[Any], eset: Iterable[Any]) -> bool:
        """Make new vertices and edges active beside those that are; the edges bring their vertices."""
        active = SparseOptimizer.active_edges(self)
        return SparseOptimizer.initialize_optimization(self, [*active, *eset])

    def _present_problem(self) -> Problem:
        if self._problem is None or self._problem.version != self._version:
            self._problem = Problem(self)
            self._solver = None
        return self._problem

    def _active_problem(self, what: str) -> Problem:
        if self._problem is None or self._problem.selection is None:
            raise GraphError(f"{what}: call initialize_optimization() first.")
        return self._problem

    def active_vertices(self) -> list[Any]:
        """Vertices of active edges by ascending id."""
        return [] if self._problem is None else self._problem.active_vertices()

    def active_edges(self) -> list[Any]:
        """Active edges in the order in which they were added."""
        return [] if self._problem is None else self._problem.active_edges()

    def find_active_edge(self, e: Any) -> Any:
        """The edge itself if it is active, else None."""
        return e if e in SparseOptimizer.active_edges(self) else None

    def find_active_vertex(self, v: Any) -> Any:
        """The vertex itself if it is active, else None."""
        return v if v in SparseOptimizer.active_vertices(self) else None

    def index_mapping(self) -> list[Any]:
        """Vertices that are optimized, in the order of their Hessian indices: marginalized ones last."""
        free = [one for one in SparseOptimizer.active_vertices(self) if not one.fixed()]
        return sorted(free, key=lambda one: (one.marginalized(), one._id))

    def _number_hessian(self) -> None:
        selection = None if self._problem is None else self._problem.selection
        if selection is None or self._numbered is selection:
            return
        for one in self._vertices.values():
            one._hessian_index = -1
        for number, one in enumerate(SparseOptimizer.index_mapping(self)):
            one._hessian_index = number
        self._numbered = selection

    # ---------------------------------------------------------------- errors

    def compute_active_errors(self) -> None:
        """Compute the errors of all active edges at the present estimates."""
        for action in list(self._error_actions):
            action(self, {"iteration": -1})
        if self._problem is not None and self._problem.selection is not None:
            self._problem.take_values()
            self._problem.compute_errors()

    def active_chi2(self) -> float:
        """Sum of the active edges' chi2, of their last errors."""
        return 0.0 if self._problem is None else self._problem.active_chi2()

    def active_robust_chi2(self) -> float:
        """The same with robust kernels."""
        return 0.0 if self._problem is None else self._problem.active_robust_chi2()

    # ---------------------------------------------------------------- optimizing

    def optimize(self, iterations: int, online: bool = False) -> int:
        """Run the algorithm for at most `iterations` iterations on the active part.

        Returns the number of iterations, 0 if the first linear system cannot be solved, -1 if nothing is
        active.
        """
        self._statistics = []
        if self._problem is None or not self._has_free_vertices():
            sys.stderr.write(
                "SparseOptimizer.optimize: 0 vertices to optimize, maybe forgot initialize_optimization().\n"
            )
            return -1
        if self._algorithm is None:
            raise OptionError("SparseOptimizer.optimize: call set_algorithm() first.")
        if iterations <= 0 or self.terminate():
            return 0
        problem = self._problem
        try:
            summary = self.summary = self._run(problem, int(iterations))
        finally:  # after an exception in a program's code: the last accepted estimates
            problem.give_estimates()
        problem.compute_errors()
        return self._count(summary)

    def _has_free_vertices(self) -> bool:
        return self._problem is not None and self._problem.has_free_vertices

    def _run(self, problem: Problem, iterations: int) -> Summary:
        start = time.perf_counter()
        self._passes_once = False
        assert self._algorithm is not None and problem.selection is not None
        problem.take_values()
        selection = problem.selection
        rules, algorithm = self._algorithm._make(iterations)
        summary = Summary(selection.num_active_vertices, selection.num_active_edges, self._algorithm._name)
        solver = self._prepared(problem, summary.seconds)
        signals = StopSignals(self, None, start)
        summary.take_description(solver.describe())
        recorder = None
        if self._compute_statistics:
            recorder = StatisticsRecorder(solver, selection, summary.seconds)
        report = self._report(problem, summary, recorder, iterations)
        with nullcontext() if recorder is None else recorder.timing():
            run(algorithm, rules, solver, summary, signals, report)
        if recorder is not None:
            self._statistics = recorder.filled(iterations)
        summary.seconds["total"] = time.perf_counter() - start
        return summary

    def _prepared(self, problem: Problem, seconds: dict[str, float]) -> Any:
        assert self._algorithm is not None and problem.selection is not None
        linear_solver = self._algorithm.solver().linear_solver()._linear_solver
        has_python = needs_python(problem)
        options = devices.solver_options(linear_solver, on_host=has_planes(problem))
        solver = prepared_solver(
            problem.graph, problem.selection, options, seconds, may_narrow=not has_python
        )
        self._solver = PythonEdgeSolver(solver, problem) if has_python else solver
        return self._solver

    def _report(
        self, problem: Problem, summary: Summary, recorder: StatisticsRecorder | None, iterations: int
    ) -> Any:
        """What to do after each iteration; None if there is nothing."""
        overridden = type(self).post_iteration is not OptimizableGraph.post_iteration
        overridden |= type(self).pre_iteration is not OptimizableGraph.pre_iteration
        watched = bool(self._pre_actions or self._post_actions or overridden)
        if not (watched or self._verbose or recorder):
            return None
        elapsed = [0.0]

        def report(iteration: Iteration) -> None:
            elapsed[0] += iteration.seconds
            if recorder is not None:
                recorder.add(iteration)
            if self._verbose:
                sys.stderr.write(_verbose_line(iteration, summary, elapsed[0]))
            if watched:
                problem.give_estimates()
                problem.compute_errors()
                self.post_iteration(iteration.iteration)
                if iteration.iteration + 1 < iterations and not self.terminate():
                    self._begin_iteration(iteration.iteration + 1)

        if watched:
            self._begin_iteration(0)
        return report

    def _begin_iteration(self, number: int) -> None:
        """Run the actions before an iteration; what they ask for comes into effect after it."""
        self.pre_iteration(number)
        self._passes_once = self.terminate()

    @staticmethod
    def _count(summary: Summary) -> int:
        """g2o's return value."""
        if summary.termination in _FAILURES:
            return 0
        return len(summary.iterations)

    def compute_initial_guess(self, propagator: Any = None) -> None:
        """Set active vertices from the measurements, along a spanning tree from fixed vertices."""
        from graphopt.g2o.propagator import compute_initial_guess

        compute_initial_guess(self, propagator)

    def set_to_origin(self) -> None:
        """Set the estimates of all vertices to the identity."""
        for one in self._vertices.values():
            one.set_to_origin()

    def update(self, update: Any) -> None:
        """Move the active vertices by one long update, in the order of `index_mapping`."""
        numbers = np.asarray(update, np.float64).ravel()
        at = 0
        for one in SparseOptimizer.index_mapping(self):
            one.oplus(numbers[at : at + one.dimension()])
            at += one.dimension()

    # ---------------------------------------------------------------- estimates

    def push(self, vlist: Iterable[Any] | None = None) -> None:
        """Remember estimates, of the active vertices by default."""
        super().push(SparseOptimizer.active_vertices(self) if vlist is None else vlist)

    def pop(self, vlist: Iterable[Any] | None = None) -> None:
        """Return to the last pushed estimates."""
        super().pop(SparseOptimizer.active_vertices(self) if vlist is None else vlist)

    def discard_top(self, vlist: Iterable[Any] | None = None) -> None:
        """Forget the last pushed estimates."""
        super().discard_top(SparseOptimizer.active_vertices(self) if vlist is None else vlist)

    def clear(self) -> None:
        """Take everything out; objects that are held elsewhere keep their data."""
        super().clear()
        self._problem = self._solver = None

    # ---------------------------------------------------------------- Hessian

    def _block_solver(self) -> Any:
        if self._solver is None:
            raise GraphError("There is no Hessian: call optimize() first.")
        return self._solver

    def _hessian_block(self, vertex: Any) -> np.ndarray:
        solver, block = self._block_of(vertex)
        solver = self._with_blocks(solver)
        structure = solver.structure
        last = int(structure.col_ptr[block + 1]) - 1
        dim = int(structure.dims[block])
        values = solver.values[structure.block_ptr[last] : structure.block_ptr[last + 1]]
        return values.reshape(dim, dim).copy()

    def _with_blocks(self, solver: Any) -> Any:
        """A block solver whose H the CPU can read: a device may keep its own for itself."""
        if hasattr(solver, "values"):
            return solver
        problem = self._active_problem("hessian")
        found = CpuBlockSolver(problem.graph, solver.structure, SolverOptions("cpu"))
        found.linearize()
        return found

    def _b_block(self, vertex: Any) -> np.ndarray:
        solver, block = self._block_of(vertex)
        first = int(solver.structure.offsets[block])
        return solver.b[first : first + int(solver.structure.dims[block])].copy()

    def _block_of(self, vertex: Any) -> tuple[Any, int]:
        solver = self._block_solver()
        block = solver.structure.block_of(*self._active_problem("hessian").place_of(vertex))
        if block < 0:
            raise GraphError(f"{vertex!r} is fixed or has no active edge: it has no Hessian block.")
        return solver, block

    def compute_marginals(self, *arguments: Any) -> tuple[SparseBlockMatrixX, bool]:
        """Covariance blocks: (matrix by Hessian indices, success).

        Of a vertex, of a sequence of vertices (each with itself), of a sequence of pairs of Hessian
        indices, or of Hessian indices. The second form of older bindings, `compute_marginals(spinv,
        vertices)`, fills `spinv`.
        """
        from graphopt.g2o.marginals import compute_marginals

        return compute_marginals(self, arguments)

    # ---------------------------------------------------------------- gauge and components

    def gauge_freedom(self) -> bool:
        """No vertex of the largest dimension is fixed or has a unary edge of that dimension."""
        return self._flagged_graph().gauge_freedom()

    def find_gauge(self) -> Any:
        """The vertex that g2o would fix, None for an empty graph."""
        found = self._flagged_graph().find_gauge()
        return None if found is None else self._vertices.get(found)

    def is_connected(self, level: int = 0) -> bool:
        """All vertices of the level's edges are connected."""
        return SparseOptimizer.num_connected_components(self, level) <= 1

    def num_connected_components(self, level: int = 0) -> int:
        """Connected components by the edges of a level (of all if negative); a vertex without edge is one."""
        graph = self._flagged_graph()
        chosen = {
            one.edge_set: np.flatnonzero(
                np.ones(len(one.objects), bool) if level < 0 else one.take_levels() == level
            )
            for one in self._present_problem().edge_lists
        }
        count, labels = connected_components(graph.select(edges=chosen))
        return count + sum(int(np.count_nonzero(one < 0)) for one in labels)

    def _flagged_graph(self) -> Graph:
        problem = self._present_problem()
        for one in problem.vertex_lists:
            one.take_flags()
        return problem.graph

    def graph(self) -> Graph:
        """A `graphopt.Graph` with the present content: a copy, without edges that are defined in Python."""
        problem = Problem(self)
        problem.take_values()
        for vertices in problem.vertex_lists:
            vertices.take_flags()
        for edges in problem.edge_lists:
            edges.edge_set.level = edges.take_levels()
        return problem.graph

    def print_graph_summary(self) -> str:
        """Counts and chi2 in a few lines, g2o's text."""
        lines = ["Graph summary:", f"  vertices: {len(self._vertices)}", f"  edges: {len(self._edges)}"]
        if self._vertices:
            largest = OptimizableGraph.max_dimension(self)
            poses = sum(one.dimension() == largest for one in self._vertices.values())
            lines.append(f"  poses: {poses}")
            lines.append(f"  landmarks: {len(self._vertices) - poses}")
            lines.append(f"  levels: {len({edge.level() for edge in self._edges})}")
        active = SparseOptimizer.active_edges(self)
        lines.append(f"  active vertices: {len(SparseOptimizer.active_vertices(self))}")
        lines.append(f"  active edges: {len(active)}")
        if active:
            lines.append(f"  active chi2: {SparseOptimizer.active_chi2(self):g}")
            lines.append(f"  active robust chi2: {SparseOptimizer.active_robust_chi2(self):g}")
        lines.append(f"  connected_components: {SparseOptimizer.num_connected_components(self)}")
        return "\n".join(lines) + "\n"


def _verbose_line(iteration: Iteration, summary: Summary, elapsed: float) -> str:
    """g2o's line."""
    line = (
        f"iteration= {iteration.iteration}\t chi2= {iteration.chi2:.6f}\t time= {iteration.seconds:g}\t "
        f"cumTime= {elapsed:g}\t edges= {summary.edges}\t schur= {int(summary.schur not in ('', 'off'))}"
    )
    if iteration.lambda_ is not None:
        line += f"\t lambda= {iteration.lambda_:.6f}\t levenbergIter= {iteration.trials}"
    return line + "\n"
