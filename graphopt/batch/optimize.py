"""`optimize_batch`: thousands of small problems of one shape in one call.

One graph says what the problems have in common: vertices, edges, robust kernels, what is fixed. Arrays with a
leading dimension of problems say what differs. Each problem has its own damping and its own end; the
algorithm is the native loop that `optimize` runs on small graphs, so both give the same digits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.batch.arrays import BatchArrays, structure_of
from graphopt.batch.problems import ProblemArrays, checked_problems
from graphopt.batch.result import BatchSummary
from graphopt.batch.workers import Workers
from graphopt.errors import DeviceError, GraphError, OptionError, SolverError
from graphopt.graph import Graph, Selection
from graphopt.graph.bounds import constraints_of
from graphopt.host_memory import memory_for
from graphopt.linear.options import SolverChanges, SolverOptions
from graphopt.optimizer.algorithm import is_below_zero
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.request import Request
from graphopt.optimizer.signals import Settable, StopSignals
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.option_names import DRIVERS
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.auto_device import FAILURES, device_for_batch, may_stay
from graphopt.suggestions import knowing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from graphopt.batch.on_device import DeviceWorkers, Refined
    from graphopt.batch.resident import Sharing

_ENDINGS = np.array(
    [
        TerminationType.NO_CONVERGENCE,
        TerminationType.CONVERGENCE,
        TerminationType.NO_IMPROVEMENT,
        TerminationType.LINEAR_SOLVER_FAILURE,
        TerminationType.NON_FINITE,
        TerminationType.USER_STOP,
    ],
    object,
)
"""By number of the native ending."""
_STOPPED = 5


class BatchChanges(SolverChanges, total=False):
    """Keywords of `optimize_batch` beside its parameters, all described there."""

    estimates: Mapping[Any, Any] | None
    measurements: Mapping[Any, Any] | None
    information: Mapping[Any, Any] | None
    kernel_widths: Mapping[Any, Any] | None
    parameters: Mapping[Any, Any] | None
    masks: Mapping[Any, Any] | None
    fix: str | list[int]
    level: int
    time_limit: float | None
    stop: Settable | None
    on_interrupt: str


_SOLVER = frozenset(field.name for field in fields(SolverOptions))


@knowing_options(list(BatchChanges.__annotations__))
@memory_for(lambda: "so many problems need more than the system gives. Pass some of them at a time.")
def optimize_batch(
    graph: Graph,
    *,
    method: str = "lm",
    max_iterations: int | None = None,
    options: StopRules | None = None,
    covariances: Iterable[int] = (),
    throw: bool = False,
    **changes: Unpack[BatchChanges],
) -> BatchSummary:
    """Optimize B problems that have the structure of `graph`, which stays as it is.

    What is not given is the same in all problems: that of the graph. Keys are sets of the graph, types or
    tags; rows are those of the set.

    estimates: vertex type -> (B, n, storage_dim), start of optimized vertices, place of fixed ones. Of a set
        of one vertex also (B, storage_dim), and so for the others.
    measurements: edge type -> (B, m, measurement_dim).
    information: edge type -> (B, m, r, r), or (B, m, r) for diagonal matrices.
    kernel_widths: edge type -> (B, m). parameters: parameter type -> (B, p, storage_dim).
    masks: edge type -> (B, m) bool: the edges that a problem has, where their number differs; what the arrays
        hold for the others is not looked at. A vertex without edges keeps its start.
    method: "lm", "gn" or "dogleg", with the steps and digits of `optimize` on each graph alone. By default up
        to 50 iterations, and an end where chi2 falls by less than 1e-8 of it (`optimize` runs 10 iterations
        without tolerances); `options` are the method's own, `max_iterations` overrides theirs.
    fix, level, time_limit, stop, on_interrupt: as of `optimize`. Problems that were not begun in time have
        their start, chi2 NaN, and the termination that says why.
    covariances: ids of vertices whose marginal covariances are wanted.
    throw: raise `SolverError` if a problem's result is not usable, naming the first.
    device: "cpu"; "vulkan", where a workgroup optimizes each problem, by the same loop; or "auto": a GPU for
        much work, where it can (`BatchSummary.why_not_device` says what it could not). A problem's matrix has
        to fit into the shared memory of a workgroup (48 KiB on most GPUs: 100 scalars, or more with a sparse
        factor). precision "mixed", or a GPU without float64: pairs of float32, about 13 digits. Covariances
        are found on the CPU.
    linear_solver, schur: of the CPU, as of `SolverOptions`.

    A problem whose numbers are NaN or infinite fails alone. Results do not depend on the number of threads.
    Raises `ShapeError` and `GraphError` for arrays of other shapes, asymmetric information or quaternions of
    length 0, naming the problem; `OptionError`, `DeviceError`.
    """
    start = time.perf_counter()
    given: dict[str, Any] = dict(changes)
    solver = SolverOptions(**{name: given[name] for name in given if name in _SOLVER})
    _check_options(solver)
    rules, algorithm = _algorithm(method, max_iterations, options)
    problems = checked_problems(graph, given)
    time_limit = given.get("time_limit")
    Request(time_limit=time_limit).check_time_limit()
    on_interrupt = given.get("on_interrupt", "raise")
    signals = StopSignals(given.get("stop"), time_limit, start, on_interrupt=on_interrupt)
    with graph.held_still():
        _check_graph(graph)
        selection, fixed = fix_gauge(graph, graph.select(given.get("level", 0)), given.get("fix", "auto"))
        batch = Batch(problems, selection, solver, fixed, list(covariances))
        summary = batch.run(method, rules, algorithm, signals, start)
    _raise_if_unusable(summary, signals, throw)
    return summary


def _check_options(options: SolverOptions) -> None:
    kind = options.device.partition(":")[0]
    if kind not in ("auto", "cpu", *DRIVERS):
        raise DeviceError(
            f"optimize_batch runs on 'cpu', {', '.join(map(repr, DRIVERS))} or 'auto'; device is "
            f"'{options.device}'."
        )
    if options.precision == "mixed" and kind in ("auto", "cpu"):
        raise DeviceError(
            "precision 'mixed' is for GPUs: give one by device='vulkan'. The CPU computes in double."
        )
    if options.schedule not in ("auto", "host"):
        raise DeviceError(f"schedule '{options.schedule_words}' is for GPUs. Use schedule='auto'.")
    if options.schur == "implicit":
        raise OptionError(
            "schur 'implicit' needs conjugate gradients, optimize_batch factorizes. Use 'auto'."
        )


def _algorithm(method: str, max_iterations: int | None, options: StopRules | None) -> tuple[StopRules, Any]:
    """The rules and an algorithm with a native loop."""
    rules, algorithm = Request(method, max_iterations, options).algorithm()
    if "native_method" not in vars(type(algorithm)):
        raise OptionError(
            f"method '{method}' with these options is not for optimize_batch: it decides in Python. "
            "Use 'lm', 'gn' or 'dogleg'."
        )
    if options is None:
        options = METHODS.row(method).options(
            max_iterations=50, function_tolerance=1e-8, gradient_tolerance=1e-12
        )
        return Request(method, max_iterations, options).algorithm()
    return rules, algorithm


def _check_graph(graph: Graph) -> None:
    """Refuse what the native loop does not evaluate."""
    if graph.has_computed():
        raise GraphError("optimize_batch does not take graphs with computed values (`add_computed`).")
    constraints = constraints_of(graph)
    if constraints is not None:
        raise GraphError(f"optimize_batch does not take {constraints}; optimize() does, one graph at a time.")
    for vertex_set in graph.vertex_sets:
        if vertex_set.holds_components:
            raise GraphError(
                "optimize_batch does not take vertices that hold components (`graph.hold`): "
                f"{vertex_set.type.tag}."
            )
    for edge_set in graph.edge_sets:
        if edge_set.type.is_external:
            raise GraphError(
                f"optimize_batch does not take edges that are evaluated in Python: {edge_set.type.tag}."
            )


@dataclass
class Batch:
    """One call."""

    problems: ProblemArrays
    selection: Selection | Structure
    """Or the structure of the graph alone."""
    solver: SolverOptions
    fixed: list[int]
    covariances: list[int]
    newton: tuple[np.ndarray, int] | None = None
    """Of a device: take Newton's steps at the end, see `DeviceWorkers`."""
    sharing: Sharing | None = None
    """Estimates after these steps become arrays of CUDA's."""
    refined: Refined | None = None
    """What they have found."""

    def run(
        self, method: str, rules: StopRules, algorithm: Any, signals: StopSignals, start: float
    ) -> BatchSummary:
        """Optimize; start: when the call began."""
        structure = structure_of(self.selection, self.problems)
        blocks = [self._block(structure, vertex_id) for vertex_id in self.covariances]
        arrays = BatchArrays(structure, self.problems)
        count = self.problems.count
        initial, chi2, lambdas = (np.full(count, np.nan) for _ in range(3))
        iterations, trials = (np.zeros(count, np.int32) for _ in range(2))
        ending = np.full(count, _STOPPED, np.int8)
        outcome = initial, chi2, lambdas, iterations, trials, ending
        size = sum(int(structure.dims[k]) ** 2 for k in blocks)
        covariances = np.full((count, size), np.nan) if size else None
        native, _ = algorithm.native_method()
        on_device, why = self._on_device(arrays, method)
        workers = Workers(arrays, self.solver) if on_device is None or size else None
        prepared = time.perf_counter()
        with signals.catching_interrupts():
            if on_device is not None:
                on_device.run(native, rules, outcome, signals)
            if workers is not None:
                self._run(
                    workers, on_device is not None, native, rules, blocks, outcome, covariances, signals
                )
        end = time.perf_counter()
        termination = _ENDINGS[ending]
        if signals.reason is not None:
            termination[ending == _STOPPED] = signals.reason
        below = is_below_zero_each(chi2, initial)
        termination[below & (ending < 3)] = TerminationType.UNBOUNDED
        results = arrays.results()
        total = time.perf_counter()
        ran = on_device or workers
        assert ran is not None
        return BatchSummary(
            self.problems, method, results, initial, chi2, iterations, trials, termination,
            self._split(structure, blocks, covariances), self.fixed, ran.linear_solver, ran.device,
            {"prepare": prepared - start, "optimize": end - prepared, "total": total - start}, why,
        )  # fmt: skip

    def _on_device(self, arrays: BatchArrays, method: str) -> tuple[DeviceWorkers | None, str]:
        """What runs the problems on a GPU, None: the CPU; why "auto" has taken the CPU."""
        spec, edges = self.solver.device, sum(len(group.rows) for group in arrays.structure.groups)
        if spec == "auto":
            spec = device_for_batch(self.solver, self.problems.count, edges)
        if spec == "cpu":
            return None, ""
        from graphopt.batch.on_device import DeviceWorkers

        try:
            workers = DeviceWorkers(arrays, method, self.solver, spec, self.newton, self.sharing)
            self.refined = workers.refined
            return workers, ""
        except FAILURES as error:
            if not may_stay(self.solver):
                raise
            return None, str(error)

    def _run(
        self,
        workers: Workers,
        is_done: bool,
        native: Any,
        rules: StopRules,
        blocks: list[int],
        outcome: tuple[np.ndarray, ...],
        covariances: np.ndarray | None,
        signals: StopSignals,
    ) -> None:
        """Optimize by the CPU, or find covariances only of what a device has optimized."""
        if is_done:
            rules, outcome = replace(rules, max_iterations=0), tuple(map(np.copy, outcome))
        with signals.watching():
            workers.run(native, rules, blocks, (*outcome, covariances))

    def _block(self, structure: Structure, vertex_id: int) -> int:
        number, row = self.problems.graph.vertex_place(vertex_id)
        found = [
            k
            for k, each in enumerate(structure.selection.vertex_sets)
            if each is self.problems.graph.vertex_sets[number]
        ]
        block = structure.block_of(found[0], row) if found else -1
        if block < 0:
            raise GraphError(f"Vertex {vertex_id} is fixed or has no active edge: it has no covariance.")
        return block

    def _split(
        self, structure: Structure, blocks: list[int], covariances: np.ndarray | None
    ) -> dict[int, np.ndarray]:
        if covariances is None:
            return {}
        dims = structure.dims[blocks].astype(int)
        parts = np.split(covariances, np.cumsum(dims**2)[:-1], axis=1)
        return {
            vertex_id: part.reshape(-1, dim, dim)
            for vertex_id, part, dim in zip(self.covariances, parts, dims.tolist(), strict=True)
        }


def is_below_zero_each(chi2: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """`is_below_zero` of every problem."""
    negative = np.flatnonzero(chi2 < 0.0)
    found = np.zeros(len(chi2), bool)
    found[negative] = [is_below_zero(float(chi2[k]), float(initial[k])) for k in negative]
    return found


def _raise_if_unusable(summary: BatchSummary, signals: StopSignals, throw: bool) -> None:
    if signals.reason is TerminationType.USER_INTERRUPT:
        whole = Summary(0, 0, summary.method, TerminationType.USER_INTERRUPT)
        signals.raise_if_interrupted(whole)
    if throw and not summary.is_usable.all():
        bad = np.flatnonzero(~summary.is_usable)
        raise SolverError(f"{len(bad)} of {len(summary)} problems failed. {summary.message(int(bad[0]))}")
