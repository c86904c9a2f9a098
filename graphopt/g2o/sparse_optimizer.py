"""`SparseOptimizer`: the graph with an optimization algorithm.

    initialize_optimization()   chooses the active edges and numbers their vertices
    optimize(n)                 runs the algorithm of `set_algorithm` on them; the objects have the result

Semantics are g2o's: `optimize` returns the number of iterations it did, 0 if the first linear system cannot
be solved, -1 if nothing is active. All native code runs without the GIL.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError, Stopped
from graphopt.g2o.actions import HyperGraphAction
from graphopt.g2o.active_graph import ActiveGraph
from graphopt.g2o.engine import devices
from graphopt.g2o.engine.interrupts import OptimizerSignals
from graphopt.g2o.engine.problem import Problem
from graphopt.g2o.engine.python_edges import PythonEdgeSolver, has_planes, needs_python
from graphopt.g2o.engine.solvers import OptimizationAlgorithm, OptimizationAlgorithmGaussNewton
from graphopt.g2o.engine.statistics import G2OBatchStatistics, StatisticsRecorder, statistics_of_update
from graphopt.g2o.optimizable_graph import OptimizableGraph, _add
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.run import run
from graphopt.optimizer.summary import Iteration, Summary, TerminationType
from graphopt.solver.reuse import prepared_solver

_FAILURES = (TerminationType.LINEAR_SOLVER_FAILURE, TerminationType.NON_FINITE)


class SparseOptimizer(ActiveGraph):
    """A graph that can be optimized. May be subclassed; call `super().__init__()`."""

    _is_optimizer = True

    def __init__(self) -> None:
        super().__init__()
        self._algorithm: OptimizationAlgorithm | None = None
        self._verbose = False
        self._force_stop: Any = False
        self._action_stop = False
        self._passes_once = False
        self._flag_is_old = False
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
            self._passes_once, self._flag_is_old = False, True
            return False
        return SparseOptimizer.terminate(self)

    def is_set_within(self) -> bool:
        """What native code asks in the middle of an iteration.

        The flag counts there if another thread has set it since the iteration began: actions that ask to
        stop let the iteration end, as in g2o.
        """
        return not (self._passes_once or self._flag_is_old) and SparseOptimizer.terminate(self)

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

    # ---------------------------------------------------------------- optimizing

    def optimize(self, iterations: int, online: bool = False) -> int:
        """Run the algorithm for at most `iterations` iterations on the active part.

        Returns the number of iterations, 0 if the first linear system cannot be solved or chi2 is not a
        number (a line on stderr says where), -1 if nothing is active. Ctrl-C raises KeyboardInterrupt once
        the best estimates so far are in the vertices; see `set_on_interrupt`.

        online: with Gauss-Newton, on the CPU, for elements that are not defined in Python: a
        `graphopt.Online` that is kept from call to call takes what was added since, in at most `iterations`
        steps that linearize again only what moves. They count as one iteration, and chi2 is that of batch to
        about 5e-4. Otherwise the call does the same as without, as in g2o.
        """
        self._statistics = []
        if self._problem is None or not self._has_free_vertices():
            sys.stderr.write(
                "SparseOptimizer.optimize: 0 vertices to optimize, maybe forgot initialize_optimization().\n"
            )
            return -1
        if self._algorithm is None:
            raise OptionError("SparseOptimizer.optimize: call set_algorithm() first.")
        if iterations <= 0 or SparseOptimizer.terminate(self):
            return 0
        problem = self._problem
        if not online:
            self._incremental = None
        signals = OptimizerSignals(self)
        with signals.catching_interrupts():
            problem.take_values()
            try:
                if online and self._is_incremental(problem):
                    summary = self._run_incremental(problem, int(iterations))
                else:
                    summary = self._run(problem, int(iterations), signals)
            finally:  # after an exception in a program's code, or Ctrl-C: the last accepted estimates
                problem.give_estimates()
        signals.raise_if_interrupted(summary)
        problem.compute_errors()
        if summary.termination is TerminationType.NON_FINITE:
            sys.stderr.write(f"SparseOptimizer.optimize: {summary.message}\n")
        return self._count(summary)

    def _has_free_vertices(self) -> bool:
        return self._problem is not None and self._problem.has_free_vertices

    def _run(self, problem: Problem, iterations: int, signals: OptimizerSignals) -> Summary:
        start = time.perf_counter()
        self._passes_once = self._flag_is_old = False
        assert self._algorithm is not None and problem.selection is not None
        selection = problem.selection
        rules, algorithm = self._algorithm._make(iterations)
        summary = Summary(selection.num_active_vertices, selection.num_active_edges, self._algorithm._name)
        self.summary = summary
        try:
            with signals.setting_up(selection.num_active_edges):
                solver = self._prepared(problem, summary.seconds)
                summary.take_description(solver.describe())
                recorder = None
                if self._compute_statistics:
                    recorder = StatisticsRecorder(solver, selection, summary.seconds)
                report = self._report(problem, summary, recorder, iterations, algorithm)
        except Stopped:
            assert signals.reason is not None
            summary.termination = signals.reason
            return summary
        if recorder is None:
            run(algorithm, rules, solver, summary, signals, report)
        else:
            with recorder.timing():
                run(algorithm, rules, solver, summary, signals, report)
            self._statistics = recorder.filled(iterations)
        summary.seconds["total"] = time.perf_counter() - start
        return summary

    def _is_incremental(self, problem: Problem) -> bool:
        return (
            isinstance(self._algorithm, OptimizationAlgorithmGaussNewton)
            and devices.default_device() == "cpu"
            and not needs_python(problem)
        )

    def _run_incremental(self, problem: Problem, iterations: int) -> Summary:
        """As `_run`, by an `Online` that is kept; all its steps count as one iteration."""
        assert problem.selection is not None
        start, selection = time.perf_counter(), problem.selection
        summary = Summary(selection.num_active_vertices, selection.num_active_edges, "online")
        self.summary, self._solver = summary, None
        report = self._report(problem, summary, None, 1, None)
        if self._incremental is None or not self._incremental.serves(problem, iterations):
            from graphopt.g2o.engine.incremental import Incremental  # loads scipy

            self._incremental = Incremental(problem, iterations)
        try:
            found = self._incremental.update(problem)
        except GraphError as error:  # a direction that no edge determines, or a number that is not finite
            summary.termination, summary.message = TerminationType.LINEAR_SOLVER_FAILURE, str(error)
            sys.stderr.write(f"SparseOptimizer.optimize: {error}\n")
            return summary
        iteration = Iteration(0, found.chi2, None, 1, found.seconds)
        summary.iterations.append(iteration)
        summary.final_chi2 = found.chi2
        if found.converged:
            summary.termination = TerminationType.CONVERGENCE
        if self._compute_statistics:
            self._statistics = [statistics_of_update(found)]
        if report is not None:
            report(iteration)
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
        self,
        problem: Problem,
        summary: Summary,
        recorder: StatisticsRecorder | None,
        iterations: int,
        algorithm: Any,
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
                sys.stderr.write(_verbose_line(iteration, summary, elapsed[0], algorithm))
            if watched:
                problem.give_estimates()
                problem.compute_errors()
                self.post_iteration(iteration.iteration)
                if iteration.iteration + 1 < iterations and not SparseOptimizer.terminate(self):
                    self._begin_iteration(iteration.iteration + 1)

        if watched:
            self._begin_iteration(0)
        return report

    def _begin_iteration(self, number: int) -> None:
        """Run the actions before an iteration; what they ask for comes into effect after it."""
        self.pre_iteration(number)
        self._passes_once = SparseOptimizer.terminate(self)
        self._flag_is_old = False

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
        if self._verbose:
            SparseOptimizer.compute_active_errors(self)
            source = "spanning tree" if propagator is None else propagator.name()
            chi2 = SparseOptimizer.active_chi2(self)
            sys.stderr.write(
                f"iteration= -1\t chi2= {chi2:.6f}\t time= 0.0\t cumTime= 0.0\t "
                f"(using initial guess from {source})\n"
            )

    def set_to_origin(self) -> None:
        """Set the estimates of all vertices to the identity."""
        for vertex in self._vertices.values():
            vertex.set_to_origin()

    def update(self, update: Any) -> None:
        """Move the active vertices by one long update, in the order of `index_mapping`."""
        numbers = np.asarray(update, np.float64).ravel()
        at = 0
        for vertex in SparseOptimizer.index_mapping(self):
            vertex.oplus(numbers[at : at + vertex.dimension()])
            at += vertex.dimension()


def _verbose_line(iteration: Iteration, summary: Summary, elapsed: float, algorithm: Any) -> str:
    """g2o's line."""
    line = (
        f"iteration= {iteration.iteration}\t chi2= {iteration.chi2:.6f}\t time= {iteration.seconds:g}\t "
        f"cumTime= {elapsed:g}\t edges= {summary.edges}\t schur= {int(summary.schur not in ('', 'off'))}"
    )
    if isinstance(algorithm, Dogleg):
        line += f"\t Delta= {algorithm.delta:g}\t step= {algorithm.last_step}\t tries= {iteration.trials}"
        if iteration.lambda_ is not None:
            line += f"\t lambda= {iteration.lambda_:g}"
    elif iteration.lambda_ is not None:
        line += f"\t lambda= {iteration.lambda_:.6f}\t levenbergIter= {iteration.trials}"
    return line + "\n"
