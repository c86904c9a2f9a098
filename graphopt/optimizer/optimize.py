"""`optimize`: from a graph to its optimum, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt import option_names
from graphopt.errors import OptionError, SolverError, Stopped
from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.graph.behind import num_images
from graphopt.graph.residuals import edge_chi2, robust_chi2
from graphopt.graph.selection import EdgeSelection
from graphopt.linear.options import SolverChanges, SolverOptions
from graphopt.optimizer.algorithm import Algorithm, AlgorithmBase, is_below_zero
from graphopt.optimizer.computed import inlining_values
from graphopt.optimizer.fallback import staying_on_the_cpu
from graphopt.optimizer.given_graph import holding_the_graph
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.progress import tell_end, tell_start, watching
from graphopt.optimizer.run import Callback, run
from graphopt.optimizer.signals import Settable, StopSignals
from graphopt.optimizer.summary import Summary
from graphopt.optimizer.unit_quaternions import make_unit, rough_rows
from graphopt.option_names import ROBUST
from graphopt.plugins import Table
from graphopt.problem.gauge import known_gauge
from graphopt.problem.held import Problem, without_held
from graphopt.problem.split import in_small_blocks
from graphopt.problem.unseen import points_unseen
from graphopt.solver.auto_device import has_small_blocks, open_ahead
from graphopt.solver.configurations import configured
from graphopt.solver.reuse import begin_ahead, prepared_solver
from graphopt.suggestions import knowing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

MOST_VIEWS = 200_000
"""Images of points up to which those behind their cameras are counted at the end; more would take long."""
NOT_LOOKED_FOR = "Points behind their cameras were not looked for among {} images; Graph.points_behind does."
_LAST_SECONDS = 0.02
"""For chi2 after an end during the set-up."""
_ROWS_AT_ONCE = 10_000
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
@holding_the_graph
@inlining_values
@staying_on_the_cpu
def optimize(
    graph: Graph,
    method: str = "auto",
    max_iterations: int | None = None,
    *,
    options: StopRules | None = None,
    configuration: str | None = None,
    fix: str | list[int] = "auto",
    level: int = 0,
    vertices: Any = None,
    edges: Any = None,
    time_limit: float | None = None,
    callback: Callback | None = None,
    stop: Settable | None = None,
    on_interrupt: str = "raise",
    robust: str = "kernels",
    computed: str = "auto",
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
    computed: of a graph with computed values (`Graph.add_computed`): "inline" puts their functions into those
        of the edges, "materialize" keeps values and derivatives in arrays and multiplies by the chain rule;
        "auto" inlines where no edge gets many vertices by it (`computed`).
    look_behind: False leaves `summary.points_behind` empty, for programs that judge themselves what cameras
        see: looking takes as long as some of a small problem's iterations.
    throw: raise `SolverError` if the summary is not usable, instead of returning it.
    """
    start = time.perf_counter()
    if robust not in ROBUST:
        raise OptionError(f"robust is '{robust}', expected one of {', '.join(ROBUST)}.")
    asked = SolverOptions(**solver_changes)  # type: ignore[arg-type]
    if "," in asked.device:
        raise OptionError(f"device '{asked.device}' names several. {SEVERAL}")
    rules, algorithm = algorithm_of(method, options, max_iterations)
    materialize = graph.has_computed()  # those that are inlined are gone
    if materialize and fix == "auto":
        fix = "none"  # what holds poses through values is not looked into; damping takes care
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0.0):
        raise OptionError(f"time_limit is {time_limit!r}, must be a number > 0 of seconds.")
    signals = StopSignals(stop, time_limit, start, on_interrupt=on_interrupt)
    solver_options = configured(configuration, asked)
    if robust in ROBUST_METHODS:
        selection, held = hold(graph, graph.select(level, vertices, edges), fix)

        def inner(chosen: dict[EdgeSet, np.ndarray], num_iterations: int | None) -> Summary:
            left = None if time_limit is None else max(start + time_limit - time.perf_counter(), 1e-9)
            return optimize(
                graph, method, options=_inner_rules(rules, num_iterations), configuration=configuration,
                fix=held or "none", vertices=vertices, edges=chosen, time_limit=left, callback=callback,
                stop=stop, on_interrupt=on_interrupt, verbose=verbose, computed=computed, **asdict(asked),
            )  # fmt: skip

        summary: Summary = ROBUST_METHODS[robust](graph, selection, inner)
        summary.fixed_by_gauge = held
        raise_if_unusable(summary, throw)
        return summary
    open_ahead(solver_options.device)
    summary = Summary(0, 0, method)
    selection: Selection | None = None
    with signals.catching_interrupts(at_once=True):
        try:
            with signals.watching():
                is_whole = vertices is None and edges is None and not materialize
                go_on = _begin_ahead(graph, solver_options, algorithm) if is_whole else None
                selection, held = hold(graph, graph.select(level, vertices, edges), fix)
                rough = rough_rows(selection)
                if rough and METHODS.row(method).has_tolerances:
                    make_unit(rough)
                    rough, go_on = [], None  # that began with the old ones
                signals.check()
                summary.vertices, summary.edges = selection.num_active_vertices, selection.num_active_edges
                summary.fixed_by_gauge = held
                summary.seconds["analyze"] = time.perf_counter() - start
                problem = Problem(graph, selection) if materialize else without_held(graph, selection)
                if not materialize and has_small_blocks(solver_options):
                    problem = in_small_blocks(problem)
                make = partial(prepared_solver, go_on=go_on if problem.graph is graph else None)
                if materialize:
                    from graphopt.computed.materialized import (
                        materialized_solver as make,
                    )  # loads scipy
                solver = make(problem.graph, problem.selection, solver_options, summary.seconds)
        except Stopped:
            selection = selection or graph.select(level, vertices, edges)
            summary.vertices, summary.edges = selection.num_active_vertices, selection.num_active_edges
            _note_stop_before_chi2(summary, signals, graph, selection)
            close_seconds(summary.seconds, time.perf_counter() - start)
            signals.raise_if_interrupted(summary)
            return summary
        tell_start(summary, verbose)
        told = watching(summary, verbose, problem.callback(callback))
        try:
            run(algorithm, rules, solver, summary, signals, told)
        finally:
            if signals.reason is not None and np.isnan(summary.initial_chi2):
                _note_stop_before_chi2(summary, signals, graph, selection)
            problem.bring_back()
            if materialize:
                graph.compute()
            if rough:  # what was optimized were no rotations, and what was written are
                summary.final_chi2 = chi2_within(graph, selection.edges, np.inf)
                if summary.final_chi2 > summary.initial_chi2:
                    summary.message = (
                        f"{summary.message} {_ROUGH.format(sum(len(rows) for _, rows in rough))}".strip()
                    )
    if is_below_zero(summary.final_chi2, summary.initial_chi2):
        summary.message = f"{_lowest_edge(graph, selection.edges)} {summary.message}".strip()
    if look_behind:
        _count_behind(graph, selection, summary)
    close_seconds(summary.seconds, time.perf_counter() - start)
    summary.take_description(solver.describe())  # its overlap is no part of the total
    summary.memory_bytes += graph.nbytes
    tell_end(summary, verbose)
    raise_if_unusable(summary, throw)
    return summary


def _begin_ahead(graph: Graph, options: SolverOptions, algorithm: Algorithm) -> Callable[[], None] | None:
    """Let a device start as the algorithm will, see `reuse.begin_ahead`."""
    if isinstance(algorithm, AlgorithmBase):
        return begin_ahead(graph, options, algorithm.first_looks, algorithm.first_damping)
    return begin_ahead(graph, options, lambda structure: [], lambda structure, chi2: None)


def _count_behind(graph: Graph, selection: Selection, summary: Summary) -> None:
    """Fill `points_behind`."""
    count = num_images(selection.edges)
    if count > MOST_VIEWS:
        summary.message = f"{summary.message} {NOT_LOOKED_FOR.format(count)}".strip()
    else:
        summary.points_behind = points_unseen(graph, selection.edges)


def raise_if_unusable(summary: Summary, throw: bool) -> None:
    """`SolverError` for a summary that is not usable, if asked for."""
    if throw and not summary.is_usable:
        raise SolverError(f"{summary.termination.value} {summary.message}".strip())


def _lowest_edge(graph: Graph, parts: Iterable[EdgeSelection]) -> str:
    """Name the edge with the lowest chi2, where that is below zero."""
    lowest, name = 0.0, ""
    for part in parts:
        squared = edge_chi2(graph, part.edge_set, part.rows)
        row = int(np.argmin(squared))
        if squared[row] < lowest:
            lowest = float(squared[row])
            ids = ", ".join(map(str, part.edge_set.look("vertices")[part.rows[row]].tolist()))
            name = f"{part.edge_set.type.tag} between vertices {ids}"
    return f"That of {name} is {lowest:.3g}; Graph.check() counts such information matrices." if name else ""


def _inner_rules(rules: StopRules, num_iterations: int | None) -> StopRules:
    """For one weighted problem on the way: few iterations from where the last ended, no other starts."""
    if num_iterations is None:
        return rules
    if isinstance(rules, AutoOptions):
        rules = replace(rules, relax_above=np.inf, contest=False)
    return replace(rules, max_iterations=min(num_iterations, rules.max_iterations))


def _note_stop_before_chi2(
    summary: Summary, signals: StopSignals, graph: Graph, selection: Selection
) -> None:
    """An optimization was asked to stop before it knew chi2 of its start."""
    assert signals.reason is not None
    summary.termination = signals.reason
    summary.initial_chi2 = summary.final_chi2 = chi2_within(graph, selection.edges, _LAST_SECONDS)
    summary.message = "That was during the set-up: no iteration was done."
    if np.isnan(summary.final_chi2):
        summary.message += " chi2 was not computed."


def chi2_within(graph: Graph, parts: Iterable[EdgeSelection], seconds: float) -> float:
    """chi2 of these edges, NaN if that takes longer; the first rows of each are evaluated in any case."""
    end = time.perf_counter() + seconds
    total = 0.0
    for part in parts:
        for first in range(0, len(part.rows), _ROWS_AT_ONCE):
            if first and time.perf_counter() > end:
                return float("nan")
            total += float(robust_chi2(graph, part.edge_set, part.rows[first : first + _ROWS_AT_ONCE]).sum())
    return total


def close_seconds(seconds: dict[str, float], total: float) -> None:
    """What no part has taken is "other"."""
    seconds["other"] = max(total - sum(seconds.values()), 0.0)
    seconds["total"] = sum(seconds.values())


def algorithm_of(
    method: str, options: StopRules | None, max_iterations: int | None
) -> tuple[StopRules, Algorithm]:
    """The rules and the algorithm of a method's name."""
    row = METHODS.row(method)
    rules = row.options() if options is None else options
    if type(rules) is not row.options:
        raise OptionError(
            f"method '{method}' takes {row.options.__name__}, got options of type {type(rules).__name__}."
        )
    if max_iterations is not None:
        rules = replace(rules, max_iterations=max_iterations)
    return rules, row.make(rules)


def hold(graph: Graph, selection: Selection, fix: str | list[int]) -> tuple[Selection, list[int]]:
    """The selection with the vertices of `fix` held, and their ids."""
    if isinstance(fix, str):
        if fix not in ("auto", "none"):
            raise OptionError(f"fix is '{fix}', expected 'auto', 'none' or a list of vertex ids.")
        places = known_gauge(graph, selection) if fix == "auto" else []
    elif not isinstance(fix, Iterable):
        raise OptionError(f"fix is {fix!r}, expected 'auto', 'none' or a list of vertex ids.")
    else:
        places = [graph.vertex_place(id_) for id_ in fix]
    ids = [int(selection.vertex_sets[number].ids[row]) for number, row in places]
    return selection.with_fixed(places), ids
