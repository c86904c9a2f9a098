"""`optimize`: from a graph to its optimum, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt import option_names
from graphopt.errors import OptionError, Stopped
from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.host_memory import memory_for
from graphopt.linear.options import SolverChanges, SolverOptions
from graphopt.optimizer.algorithm import AlgorithmBase, is_below_zero
from graphopt.optimizer.bounds import has_bounds, refuse_materialized, start_within_bounds
from graphopt.optimizer.computed import check_computed, materializes
from graphopt.optimizer.ending import (
    chi2_within,
    close_seconds,
    count_behind,
    lowest_edge,
    note_stop_before_chi2,
    raise_if_unusable,
    undetermined,
)
from graphopt.optimizer.fallback import or_on_the_cpu
from graphopt.optimizer.interior_point import InteriorPoint
from graphopt.optimizer.kkt import kkt_of
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.progress import tell_end, tell_start, watching
from graphopt.optimizer.request import Request, check_graph
from graphopt.optimizer.run import Callback, run
from graphopt.optimizer.signals import Settable, StopSignals
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.optimizer.unit_quaternions import make_unit, rough_rows
from graphopt.option_names import ROBUST
from graphopt.plugins import Table
from graphopt.problem.constrained import Constrained, constrained, has_inequalities
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.inline import INLINED_VALUES
from graphopt.problem.rewrite import Rewrite
from graphopt.problem.small_blocks import SMALL_BLOCKS
from graphopt.solver.auto_device import has_small_blocks, open_early
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.bounded import BoundedSolver, within_bounds
from graphopt.solver.configurations import configured
from graphopt.solver.constrained import ConstrainedSolver, inequalities
from graphopt.solver.reuse import lend, prepared_solver, speculate
from graphopt.suggestions import knowing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ROUGH = (
    "{} quaternions of the start are not unit: its chi2 is that of matrices which are no rotations, and "
    "rotations may not reach it. method='auto' makes them unit before it starts."
)
SEVERAL = "graphopt.distributed.optimize(graph, comm, ...) is for ranks and for several devices."
ROBUST_METHODS: Table[Any] = Table("graphopt.robust", "robust", option_names.ROBUST_METHODS, object)
"""What finds edges that may be wrong -> function of (graph, selection, inner optimization) -> `Summary`."""
OF_RANKS: dict[str, str] = dict.fromkeys(
    ("comm", "partition", "transport", "checkpoint", "every", "resume"), SEVERAL
)
"""Options of another function -> what to say."""


@knowing_options([field.name for field in fields(SolverOptions)], OF_RANKS)
def optimize(
    graph: Graph,
    method: str = "auto",
    max_iterations: int | None = None,
    *,
    options: StopRules | None = None,
    fix: str | list[int] = "auto",
    level: int = 0,
    vertices: Any = None,
    edges: Any = None,
    time_limit: float | None = None,
    callback: Callback | None = None,
    stop: Settable | None = None,
    on_interrupt: str = "raise",
    robust: str = "kernels",
    look_behind: bool = True,
    throw: bool = False,
    verbose: bool = False,
    **solver_changes: Unpack[SolverChanges],
) -> Summary:
    """Minimise chi2 over the vertices that are not fixed; the estimates in `graph` become the result.

    method: "auto" (trust region with convergence tests), or g2o's "lm", "gn", "dogleg", which by default run
    10 iterations
        without tolerances. `options` are the method's own; `max_iterations` overrides theirs.
    solver_changes: fields of `SolverOptions` by name: device, linear_solver, schur, precision, schedule,
        preconditioner, pcg_tolerance, pcg_iterations, work_queues. The summary says what "auto" took.
        schedule may name edge and vertex types: {"EDGE_SE3:QUAT": "jacobians", "VERTEX_SE3:QUAT": "merged"}.
        configuration: name of a set of these (`solver.configurations`), such as "PCG Implicit (GPU)".
        computed: of a graph with computed values (`Graph.add_computed`): "inline" puts their functions into
        those of the edges, "materialize" keeps values and derivatives in arrays and multiplies by the chain
        rule; "auto" inlines where no edge gets many vertices by it (`computed`).
    fix: "auto" holds one pose of each part of the graph that nothing else holds (of points alone, one point;
    see `problem.gauge`), in this call only;
        "none" holds none; a list of ids holds these. `summary.fixed_by_gauge` names them.
    level, vertices, edges: which part of the graph takes part (`Graph.select`).
    time_limit: seconds from the call on; checked before each trial, and inside long ones.
    callback: called with each finished `Iteration`, in which the graph may not be changed; `False` stops. One
        with an attribute `looks_at_graph = False` does not find the present estimates in the graph.
    stop: an object with `is_set()`, checked before each trial and inside long ones; another thread may set
        it.
    on_interrupt: "raise": Ctrl-C raises `KeyboardInterrupt` (with the `summary` so far as an attribute) once
        the best estimate so far is in the graph; "stop": it ends the optimization like `stop`, and the
        termination is USER_INTERRUPT. A program that has its own handler of SIGINT keeps it.
    verbose: print a line per iteration. The logger "graphopt.optimize" of the standard `logging` says the
        same at level DEBUG, start and end at INFO.
    robust: "kernels": edges count as their robust kernels say. "graduated": edges that may be wrong (those
        with a robust kernel; where none has one, those between vertices whose ids are not neighbours) count
        fully or not at all, which is found out by graduated non-convexity (`strategies.graduated`);
        `summary.outliers` names those that were left out.
    look_behind: False leaves `summary.points_behind` empty, for programs that judge themselves what cameras
        see: looking takes as long as some of a small problem's iterations.
    throw: raise `SolverError` if the summary is not usable, instead of returning it.
    """
    check_graph(graph, callback)
    request = _Request(
        method, max_iterations, options, fix, level, vertices, edges, time_limit, callback, stop,
        on_interrupt, throw, verbose, SolverOptions(**solver_changes), robust, look_behind,
    )  # fmt: skip
    with (
        graph.held_still() if isinstance(graph, Graph) else nullcontext(),
        memory_for(lambda: _needed(graph)),
    ):
        summary = or_on_the_cpu(_optimize, graph, request)
    raise_if_unusable(summary, throw)
    return summary


def _needed(graph: Any) -> str:
    return (
        f"optimizing {graph.num_vertices} vertices and {graph.num_edges} edges needs more than the system "
        "gives. The graph holds estimates that are no worse than before. linear_solver='pcg' with "
        "schur='implicit' needs the least."
    )


@dataclass(frozen=True)
class _Request(Request):
    """Options of `optimize`."""

    robust: str = "kernels"
    look_behind: bool = True


def _optimize(given: Graph, request: _Request) -> Summary:
    start = time.perf_counter()
    asked = request
    check_computed(given, request.solver)
    if request.robust not in ROBUST:
        raise OptionError(f"robust is '{request.robust}', expected one of {', '.join(ROBUST)}.")
    if "," in request.solver.device:
        raise OptionError(f"device '{request.solver.device}' names several. {SEVERAL}")
    request.check_time_limit()
    if has_inequalities(given) and request.robust not in ROBUST_METHODS:
        return _constrained(given, request, start)
    refuse_materialized(given, request.solver)
    values: Rewrite | None = None
    is_materialized = False
    graph = given
    if given.has_computed():
        given.compute()
        values = Rewrite(given, request.select(given))
        is_materialized = not has_bounds(given) and materializes(given, values.selection, request.solver)
        if not is_materialized:
            graph = values.apply(INLINED_VALUES).graph
            request = replace(
                request, level=-1, vertices=None, edges=_same_edges(values.selection),
                callback=values.callback(request.callback), solver=replace(request.solver, computed="auto"),
            )  # fmt: skip
        elif request.fix == "auto":  # what holds poses through values is not looked into; damping takes care
            request = replace(request, fix="none")
    try:
        if request.robust in ROBUST_METHODS:
            return _with_robust_method(graph, request, start)
        summary = _Optimization(graph, request, start, is_materialized).run()
        summary.certifier = asked.certifier(given)
        return summary
    finally:
        if values is not None:
            given.compute()


def _constrained(given: Graph, request: _Request, start: float) -> Summary:
    """With inequalities."""
    if given.has_computed():
        raise OptionError(
            "Inequalities in a graph with computed values (Graph.add_computed) are not supported."
        )
    source = constrained(given)
    request = replace(request, edges=source.edges(given, request.edges))
    summary = _Optimization(source.graph, request, start, False, source).run()
    summary.certifier = request.certifier(given)
    return summary


def _same_edges(selection: Selection) -> dict[EdgeSet, np.ndarray] | None:
    """To select the same again, None where all edges are selected by level."""
    return {edges.edge_set: edges.rows for edges in selection.edges} if selection.chosen_by_edges else None


def _with_robust_method(graph: Graph, request: _Request, start: float) -> Summary:
    """Let the row of `robust` find out which edges are wrong, by optimizations of some edges."""
    rules, _ = request.algorithm()
    selection, fixed = fix_gauge(graph, request.select(graph), request.fix)
    inequalities = _selected_inequalities(graph, request)

    def inner(chosen: dict[EdgeSet, np.ndarray], num_iterations: int | None) -> Summary:
        left = request.time_limit
        if left is not None:
            left = max(start + left - time.perf_counter(), 1e-9)
        options = _inner_rules(rules, num_iterations)
        chosen = {**chosen, **inequalities}
        of_these = replace(
            request, max_iterations=None, options=options, fix=fixed or "none", level=0, edges=chosen,
            time_limit=left, robust="kernels",
        )  # fmt: skip
        return or_on_the_cpu(_optimize, graph, of_these)

    summary: Summary = ROBUST_METHODS[request.robust](graph, selection, inner)
    summary.fixed_by_gauge = fixed
    return summary


def _selected_inequalities(graph: Graph, request: _Request) -> dict[EdgeSet, np.ndarray]:
    """The inequalities that take part: edge set -> rows."""
    if not has_inequalities(graph):
        return {}
    source = constrained(graph)
    chosen = replace(request, edges=source.edges(graph, request.edges)).select(source.graph)
    of_twin = {id(source.shared[id(each)]): each for each in source.sources}
    return {of_twin[id(each.edge_set)]: each.rows for each in chosen.edges if id(each.edge_set) in of_twin}


def _inner_rules(rules: StopRules, num_iterations: int | None) -> StopRules:
    """For one weighted problem on the way: few iterations from where the last ended, no other starts."""
    if num_iterations is None:
        return rules
    if isinstance(rules, AutoOptions):
        rules = replace(rules, relax_above=np.inf, contest=False)
    return replace(rules, max_iterations=min(num_iterations, rules.max_iterations))


class _Optimization:
    """One optimization: set-up, iterations, and what is said at the end."""

    def __init__(
        self,
        graph: Graph,
        request: _Request,
        start: float,
        is_materialized: bool,
        source: Constrained | None = None,
    ):
        """is_materialized: computed values are kept in arrays. source: of a graph with inequalities."""
        self._graph, self._request, self._start = graph, request, start
        self._is_materialized, self._source = is_materialized, source
        self._options = configured(request.solver)
        if self._options.computed != "auto":
            self._options = replace(self._options, computed="auto")
        self._rules, self._algorithm = request.algorithm()
        self._signals = StopSignals(
            request.stop, request.time_limit, start, on_interrupt=request.on_interrupt
        )
        self._summary = Summary(0, 0, request.method)
        self._selection: Selection | None = None
        self._rough: list[tuple[Any, np.ndarray]] = []
        """Quaternions of the start that are not unit: vertex set, rows."""

    def run(self) -> Summary:
        """Optimize; the estimates are in the graph at the end."""
        open_early(self._options.device)
        summary, signals, verbose = self._summary, self._signals, self._request.verbose
        with signals.catching_interrupts(at_once=True):
            try:
                with signals.watching():
                    problem, solver = self._set_up()
            except Stopped:
                return self._stopped_in_set_up()
            tell_start(summary, verbose)
            called = watching(summary, verbose, problem.callback(self._request.callback))
            try:
                run(self._algorithm, self._rules, solver, summary, signals, called)
                self._note_kkt(solver, problem)
            finally:
                self._finish(problem)
        self._report(solver)
        lend(problem.graph)
        return summary

    def _note_kkt(self, solver: BlockSolver, problem: Rewrite) -> None:
        """KKT conditions, before estimates go back: those at a bound get its digits."""
        if not self._summary.is_usable or self._signals.reason is not None:
            return
        if self._source is not None and isinstance(self._algorithm, InteriorPoint):
            self._algorithm.conclude(self._summary, solver, problem, self._source)
        elif self._source is not None or isinstance(solver, BoundedSolver):
            self._summary.kkt = kkt_of(solver, problem)
        else:
            return
        solver.finish()

    def _set_up(self) -> tuple[Rewrite, BlockSolver]:
        """The problem that the solver sees, and the solver."""
        graph, options, summary = self._graph, self._options, self._summary
        commit = None
        is_bounded = has_bounds(graph)
        may_start = not (self._is_materialized or is_bounded or self._source is not None)
        if self._request.takes_level and may_start:
            commit = self._speculate()
        selection = self._select()
        if is_bounded:
            summary.message = start_within_bounds(selection)
        if self._rough and METHODS.row(summary.method).has_tolerances:
            make_unit(self._rough)
            self._rough, commit = [], None  # that began with the old ones
        self._signals.check()
        summary.seconds["analyze"] = time.perf_counter() - self._start
        problem = Rewrite(graph, selection)
        if self._is_materialized:
            from graphopt.computed.materialized import materialized_solver  # loads scipy

            return problem, materialized_solver(graph, selection, options, summary.seconds)
        problem.apply(FIXED_COMPONENTS)
        if has_small_blocks(options):
            problem.apply(SMALL_BLOCKS)
        commit = None if problem.is_other_graph else commit
        make = partial(prepared_solver, commit=commit, is_kept=False)
        solver = make(problem.graph, problem.selection, options, summary.seconds)
        if inequalities(solver.structure):
            solver = constraints = ConstrainedSolver(solver, problem.graph)
            self._algorithm = InteriorPoint(self._rules, constraints)
        return problem, within_bounds(solver) if is_bounded else solver

    def _speculate(self) -> Callable[[], None] | None:
        """Let a device start as the algorithm will, see `reuse.speculate`."""
        algorithm = self._algorithm
        if isinstance(algorithm, AlgorithmBase):
            return speculate(self._graph, self._options, algorithm.first_looks, algorithm.first_damping)
        return speculate(self._graph, self._options, lambda structure: [], lambda structure, chi2: None)

    def _select(self) -> Selection:
        """The part that takes part, with the gauge fixed."""
        selection = self._request.select(self._graph)
        selection, fixed = fix_gauge(self._graph, selection, self._request.fix)
        self._selection, self._summary.fixed_by_gauge = selection, fixed
        self._note_sizes(selection)
        self._rough = rough_rows(selection)
        return selection

    def _note_sizes(self, selection: Selection) -> None:
        self._summary.vertices = selection.num_active_vertices
        self._summary.edges = selection.num_active_edges

    def _stopped_in_set_up(self) -> Summary:
        selection = self._selection or self._request.select(self._graph)
        self._note_sizes(selection)
        note_stop_before_chi2(self._summary, self._signals, self._graph, selection)
        close_seconds(self._summary.seconds, time.perf_counter() - self._start)
        self._signals.raise_if_interrupted(self._summary)
        return self._summary

    def _finish(self, problem: Rewrite) -> None:
        """Bring the estimates back; chi2 where none was found, or that of the solver is another one."""
        summary, signals, selection = self._summary, self._signals, self._selection
        assert selection is not None
        if signals.reason is not None and np.isnan(summary.initial_chi2):
            note_stop_before_chi2(summary, signals, self._graph, selection)
        problem.write_back()
        if self._is_materialized:
            self._graph.compute()
        if self._rough:  # what was optimized were no rotations, and what was written are
            summary.final_chi2 = chi2_within(self._graph, selection.edges, np.inf)
            if summary.final_chi2 > summary.initial_chi2:
                count = sum(len(rows) for _, rows in self._rough)
                summary.message = f"{summary.message} {_ROUGH.format(count)}".strip()

    def _report(self, solver: BlockSolver) -> None:
        graph, summary, selection = self._graph, self._summary, self._selection
        assert selection is not None
        if is_below_zero(summary.final_chi2, summary.initial_chi2):
            summary.message = f"{lowest_edge(graph, selection.edges)} {summary.message}".strip()
        if summary.termination is TerminationType.LINEAR_SOLVER_FAILURE and not summary.message:
            summary.message = undetermined(graph, self._request.level)
        if self._request.look_behind:
            count_behind(graph, selection, summary)
        close_seconds(summary.seconds, time.perf_counter() - self._start)
        summary.take_description(solver.describe())  # its overlap is no part of the total
        summary.memory_bytes += graph.nbytes
        tell_end(summary, self._request.verbose)
