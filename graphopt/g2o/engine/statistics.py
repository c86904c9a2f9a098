"""`G2OBatchStatistics`: what each iteration did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from graphopt.graph import Selection
from graphopt.optimizer.summary import Iteration
from graphopt.solver.capabilities import linear_system_of

if TYPE_CHECKING:
    from graphopt.online import OnlineReport


class G2OBatchStatistics:
    """One iteration in numbers, times in seconds.

    `time_quadratic_form` holds errors, Jacobians and H together, `time_linear_solution` all of solving. Parts
    of a solution on a GPU are not measured apart.
    """

    __slots__ = (
        "chi2",
        "choleskyNNZ",
        "hessian_dimension",
        "hessian_landmark_dimension",
        "hessian_pose_dimension",
        "iteration",
        "iterations_linear_solver",
        "levenberg_iterations",
        "num_edges",
        "num_vertices",
        "time_iteration",
        "time_linear_solution",
        "time_linear_solver",
        "time_linearize",
        "time_marginals",
        "time_numeric_decomposition",
        "time_quadratic_form",
        "time_residuals",
        "time_schur_complement",
        "time_symbolic_decomposition",
        "time_update",
    )
    _global: ClassVar[G2OBatchStatistics | None] = None

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0.0 if name.startswith("time") or name == "chi2" else 0)
        self.iteration = -1

    def __repr__(self) -> str:
        return f"<G2OBatchStatistics iteration {self.iteration}: chi2 {self.chi2:.9g}>"

    @staticmethod
    def global_stats() -> G2OBatchStatistics | None:
        """What `set_global_stats` set."""
        return G2OBatchStatistics._global

    @staticmethod
    def set_global_stats(statistics: G2OBatchStatistics | None) -> None:
        """Set the global statistics."""
        G2OBatchStatistics._global = statistics


def statistics_of_update(report: OnlineReport) -> G2OBatchStatistics:
    """Of an `optimize` with `online`: one iteration."""
    statistics = G2OBatchStatistics()
    statistics.iteration, statistics.chi2 = 0, report.chi2
    statistics.num_vertices, statistics.num_edges = report.vertices, report.edges
    statistics.time_iteration = report.seconds
    statistics.time_quadratic_form = report.evaluate_seconds
    statistics.time_numeric_decomposition = report.eliminate_seconds
    statistics.time_linear_solver = report.eliminate_seconds + report.solve_seconds
    statistics.time_linear_solution = statistics.time_linear_solver
    return statistics


class StatisticsRecorder:
    """Makes the statistics of an optimization's iterations."""

    def __init__(self, solver: Any, selection: Selection, seconds: Mapping[str, float]):
        self._solver = solver
        self._selection = selection
        self._seconds = seconds
        self._parts: dict[str, float] = {"schur": 0.0, "numeric": 0.0, "triangular": 0.0}
        self._before = {"analyze": 0.0, "prepare": 0.0, **self._totals("linearize", "solve", "update")}
        self.iterations: list[G2OBatchStatistics] = []

    def _totals(self, *names: str) -> dict[str, float]:
        return {name: self._seconds[name] for name in names} | self._parts

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Measure the parts of solving, where the CPU does it."""
        if linear_system_of(self._solver) is None:
            yield
            return
        with self._solver.timing_parts(self._parts):
            yield

    def add(self, iteration: Iteration) -> None:
        """Note an iteration that has just ended."""
        statistics = G2OBatchStatistics()
        structure = self._solver.structure
        statistics.iteration, statistics.chi2 = iteration.iteration, iteration.chi2
        statistics.num_vertices = self._selection.num_active_vertices
        statistics.num_edges = self._selection.num_active_edges
        statistics.levenberg_iterations = iteration.trials if iteration.lambda_ is not None else 0
        statistics.hessian_dimension, statistics.hessian_pose_dimension = structure.dim, structure.kept_dim
        statistics.hessian_landmark_dimension = structure.dim - structure.kept_dim
        statistics.time_iteration = iteration.seconds
        self._add_times(statistics)
        system = linear_system_of(self._solver)
        if system is not None:
            counts = system.counts
            statistics.choleskyNNZ = counts.scalars
            statistics.iterations_linear_solver = counts.iterations
        self.iterations.append(statistics)

    def _add_times(self, statistics: G2OBatchStatistics) -> None:
        now = self._totals("analyze", "prepare", "linearize", "solve", "update")
        spent = {name: value - self._before[name] for name, value in now.items()}
        self._before = now
        statistics.time_symbolic_decomposition = spent["analyze"] + spent["prepare"]
        statistics.time_quadratic_form = spent["linearize"]
        statistics.time_linear_solution = spent["solve"]
        statistics.time_schur_complement = spent["schur"]
        statistics.time_numeric_decomposition = spent["numeric"]
        statistics.time_linear_solver = spent["numeric"] + spent["triangular"]
        statistics.time_update = spent["update"]

    def filled(self, count: int) -> list[G2OBatchStatistics]:
        """As many as iterations were asked for, as g2o keeps them: those that did not happen are empty."""
        missing = min(count, 100_000) - len(self.iterations)
        return [*self.iterations, *(G2OBatchStatistics() for _ in range(missing))]
