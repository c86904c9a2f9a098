"""`optimize` over the ranks of a communicator.

    rank 0 has the graph   ->  shares are dealt   ->  every rank runs the same algorithm over
    `DistributedBlockSolver`   ->  estimates are collected into rank 0's graph, and told to graphs of others

What looks at the whole graph at once (convex relaxation, multi-start, re-triangulation of landmarks) is left
out of method "auto" here: with `distributed_rules(options)` one rank does the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.distributed import session
from graphopt.distributed.checkpoint import check_path, read_checkpoint
from graphopt.distributed.communicator import (
    Communicator,
    ThreadCommunicator,
    agreed,
    is_agreed,
    run_as_threads,
    sentence_of,
    together,
)
from graphopt.distributed.devices import assign_device, rank_devices, threads_of_ranks
from graphopt.distributed.gathering import bring_back
from graphopt.distributed.iterations import EachIteration
from graphopt.distributed.mpi import MpiCommunicator, is_mpi
from graphopt.distributed.report import describe_ranks
from graphopt.distributed.scattering import Scattered, Share, scatter
from graphopt.distributed.signals import AgreedSignals
from graphopt.distributed.solver import make_solver
from graphopt.distributed.tables import PartedGraph
from graphopt.distributed.transport import check_transport
from graphopt.errors import GraphError, OptionError
from graphopt.graph import Graph, Selection
from graphopt.graph.bounds import constraints_of
from graphopt.linear.options import SolverChanges, SolverOptions
from graphopt.optimizer.algorithm import Algorithm
from graphopt.optimizer.computed import check_computed, materializes
from graphopt.optimizer.ending import chi2_within, close_seconds, raise_if_unusable
from graphopt.optimizer.fallback import or_on_the_cpu
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.options import AutoOptions, StopRules
from graphopt.optimizer.progress import tell_end, tell_start
from graphopt.optimizer.request import Request, check_graph, fix_gauge
from graphopt.optimizer.run import Callback, run
from graphopt.optimizer.signals import Settable
from graphopt.optimizer.summary import Summary
from graphopt.optimizer.unit_quaternions import make_unit, rough_rows
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.inline import INLINED_VALUES
from graphopt.problem.rewrite import Rewrite
from graphopt.solver.configurations import configured
from graphopt.suggestions import knowing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class RankOptions:
    """How ranks work together."""

    partition: str = "auto"
    """Who gets what: "slabs", "metis", or "auto", see `distributed.partition`."""
    transport: str = "auto"
    """How rows that GPUs share get from one to the others in each conjugate gradient iteration: "host",
    "pages" or "auto" (`distributed.transport`). Same results."""
    checkpoint: str | None = None
    """A file that gets the estimates after every `every` iterations, whole or not at all."""
    every: int = 10
    resume: str | None = None
    """A checkpoint to start from, made with any number of ranks."""


@dataclass(frozen=True)
class RankRequest(RankOptions, Request):
    """Options of `optimize`."""


class RankChanges(SolverChanges, total=False):
    """Fields of `SolverOptions` and `RankOptions` as keywords of `optimize`."""

    partition: str
    transport: str
    checkpoint: str | None
    every: int
    resume: str | None


def distributed_rules(rules: StopRules) -> StopRules:
    """The rules without what looks at the whole graph at once."""
    if isinstance(rules, AutoOptions):
        return replace(rules, relax_above=np.inf, contest=False, reseat_gain=np.inf, patience=np.inf)
    return rules


@knowing_options(
    [field.name for kind in (SolverOptions, RankOptions) for field in fields(kind)],
    {"robust": "Graduated non-convexity runs on one rank: graphopt.optimize has it."},
)
def optimize(
    graph: Graph | PartedGraph | None,
    comm: Any = None,
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
    throw: bool = False,
    verbose: bool = False,
    **changes: Unpack[RankChanges],
) -> Summary:
    """Optimize rank 0's graph over a communicator, or over several devices of this process. Collective.

    What is not said here is as in `graphopt.optimize`. All ranks call this with the same options (callback,
    stop and device may differ), and all get the same summary.

    graph: that of rank 0 counts and is dealt out; others may pass None, and a graph of theirs gets the result
        too. Of a `PartedGraph` (`read`) every rank gives its own, whose share has the result.
    comm: an mpi4py communicator such as `MPI.COMM_WORLD`. None: a thread of this process for each device that
        `device` names, as in "vulkan:0,vulkan:1". With `comm`, such a list gives one to each rank of a host.
    changes: fields of `SolverOptions` and `RankOptions` by name: partition, transport, checkpoint, every,
        resume. computed is "inline", or "auto", which is the same here: materialized values are evaluated by
        one rank.
    Raises what one rank raises during set-up on all of them: `RankError` names it.
    """
    check_graph(graph, callback, may_be_none=True)
    names = {field.name for field in fields(RankOptions)}
    ranks: dict[str, Any] = {name: value for name, value in changes.items() if name in names}
    solver: dict[str, Any] = {name: value for name, value in changes.items() if name not in names}
    wanted = RankRequest(
        method=method, max_iterations=max_iterations, options=options, fix=fix, level=level,
        vertices=vertices, edges=edges, time_limit=time_limit, callback=callback, stop=stop,
        on_interrupt=on_interrupt, throw=throw, verbose=verbose, solver=SolverOptions(**solver), **ranks,
    )  # fmt: skip
    check_computed(graph, wanted.solver)
    if not isinstance(graph, Graph):
        return or_on_the_cpu(partial(_optimize, comm), graph, wanted)
    constraints = constraints_of(graph)
    if constraints is not None:
        raise OptionError(f"Ranks do not keep to {constraints}: use graphopt.optimize on one device.")
    with graph.held_still():
        if not graph.has_computed():
            return or_on_the_cpu(partial(_optimize, comm), graph, wanted)
        return _with_values_inlined(graph, comm, wanted)


def _with_values_inlined(graph: Graph, comm: Any, wanted: RankRequest) -> Summary:
    """Of a graph with computed values."""
    graph.compute()
    rewrite = Rewrite(graph, wanted.select(graph))
    if materializes(graph, rewrite.selection, wanted.solver):
        raise OptionError(
            "Computed values that are materialized are evaluated by one rank. Use computed='inline', or "
            "graphopt.optimize."
        )
    rewrite.apply(INLINED_VALUES)
    chosen = rewrite.selection.edges if rewrite.selection.chosen_by_edges else ()
    wanted = replace(
        wanted, level=-1, vertices=None, edges={edges.edge_set: edges.rows for edges in chosen} or None,
        callback=rewrite.callback(wanted.callback), solver=replace(wanted.solver, computed="auto"),
    )  # fmt: skip
    try:
        return or_on_the_cpu(partial(_optimize, comm), rewrite.graph, wanted)
    finally:
        graph.compute()


def _optimize(comm: Any, graph: Graph | PartedGraph | None, wanted: RankRequest) -> Summary:
    if comm is None:
        if wanted.transport != "auto" and len(rank_devices(wanted.solver.device)) == 1:
            raise OptionError(
                f"transport is '{wanted.transport}', but one device has nobody to talk to: name several, as "
                "in device='vulkan:0,vulkan:1', or give comm."
            )
        if isinstance(graph, PartedGraph):
            raise OptionError("A graph that was read in parts is optimized with the comm that read it.")
        return _in_threads(graph, wanted)
    if not is_mpi(comm):
        if not hasattr(comm, "share"):
            raise OptionError(f"comm is {comm!r}, expected an mpi4py communicator such as MPI.COMM_WORLD.")
        return optimize_rank(graph, comm, wanted)
    ranks = MpiCommunicator.of(comm)
    try:
        summary, signals = _solve(graph, ranks, wanted)
    except BaseException as error:
        if not is_agreed(error) and ranks.size > 1:
            kept = f" The last checkpoint is in {wanted.checkpoint}." if wanted.checkpoint else ""
            ranks.fail(sentence_of(ranks.rank, error) + kept)
        raise
    return _told(summary, signals, wanted)


def _in_threads(graph: Graph | None, wanted: RankRequest) -> Summary:
    size = len(rank_devices(wanted.solver.device))
    if size == 1:
        return optimize_rank(graph, ThreadCommunicator(), wanted)

    def work(comm: ThreadCommunicator) -> Summary:
        quiet = wanted if comm.rank == 0 else replace(wanted, callback=None, stop=None)
        return optimize_rank(graph if comm.rank == 0 else None, comm, quiet)

    return run_as_threads(size, work, session.ranks_of(graph, size))[0]


@dataclass(eq=False)
class _Whole:
    """What rank 0 knows."""

    problem: Rewrite
    selection: Selection
    """Before anything was held for the gauge."""
    summary: Summary
    known: session.Known | None
    """What the last optimization has left, and what is kept for the next one."""
    scattered: Scattered | None
    """How it is dealt."""
    has_rough_quaternions: bool
    """See `optimizer.unit_quaternions`."""


def optimize_rank(graph: Graph | PartedGraph | None, comm: Communicator, wanted: RankRequest) -> Summary:
    """What each rank does."""
    return _told(*_solve(graph, comm, wanted), wanted)


def _told(summary: Summary, signals: AgreedSignals, wanted: RankRequest) -> Summary:
    """The summary, or what it means for the caller; all ranks do the same, and none waits any more."""
    signals.raise_at_last(summary)
    raise_if_unusable(summary, wanted.throw)
    return summary


def _solve(
    graph: Graph | PartedGraph | None, comm: Communicator, wanted: RankRequest
) -> tuple[Summary, AgreedSignals]:
    start = time.perf_counter()
    _check_agreement(comm, wanted)
    rules, algorithm = together(comm, lambda: _algorithm(wanted))
    options = together(comm, lambda: configured(wanted.solver))
    assignment = assign_device(comm, options.device)
    signals = together(
        comm, lambda: AgreedSignals(comm, wanted.stop, wanted.time_limit, start, wanted.on_interrupt)
    )
    with signals.catching_interrupts(), threads_of_ranks(assignment.threads):
        parted = graph if isinstance(graph, PartedGraph) else None
        given = None if isinstance(graph, PartedGraph) else graph
        _check_graphs(comm, given)
        whole: _Whole | None = None
        own: session.Own | None = None
        is_parted = any(comm.share(parted is not None))
        if is_parted:
            summary, share = together(comm, lambda: _given(parted, wanted))
        else:
            whole = together(comm, lambda: _whole(given, wanted, options, comm) if comm.rank == 0 else None)
            summary = _own_summary(comm, whole)
            own = _kept(comm, whole, assignment.device)
            if own is None:
                with threads_of_ranks(assignment.threads_alone if comm.rank == 0 else None):
                    share = _dealt(comm, whole, wanted, options)
                    comm.share(None)  # ranks that are threads pick their edges with those threads too
            else:
                share = own.share
        summary.seconds["analyze"] = time.perf_counter() - start
        if own is None:
            own_options = replace(options, device=assignment.device)
            solver = make_solver(share, own_options, comm, wanted.transport)
            own = session.Own(comm, assignment.device, share, solver)
        else:
            solver = own.solver
            together(comm, solver.refresh)
        summary.seconds["prepare"] = time.perf_counter() - start - summary.seconds["analyze"]
        problem = None if whole is None else whole.problem
        scattered = None if whole is None else whole.scattered
        told = EachIteration(comm, share, given, problem, scattered, signals, summary, wanted)
        if comm.rank == 0:
            tell_start(summary, wanted.verbose)
        waited, begun = comm.seconds, time.perf_counter()
        run(algorithm, rules, solver, summary, signals, told.callback())
        waited, iterating = comm.seconds - waited, time.perf_counter() - begun
        if not is_parted:
            bring_back(comm, share, given, problem, scattered)
            summary.final_chi2 = comm.share(_final_chi2(given, whole, summary))[0]
            _keep(comm, given, whole, own)
    summary.take_description(solver.describe())
    close_seconds(summary.seconds, time.perf_counter() - start)
    describe_ranks(summary, comm, share, solver, iterating, waited)
    if comm.rank == 0:
        tell_end(summary, wanted.verbose)
    return summary, signals


_ALIKE = (
    "method", "max_iterations", "options", "solver", "partition", "transport", "checkpoint", "every",
)  # fmt: skip
"""Options that lead all ranks the same way."""


def _check_agreement(comm: Communicator, wanted: RankRequest) -> None:
    """`OptionError` on all ranks where one has another option: they would wait for each other. Collective."""
    alike = replace(wanted, solver=replace(wanted.solver, device=""))
    told = comm.share({name: repr(getattr(alike, name)) for name in _ALIKE})
    for rank, other in enumerate(told):
        for name in _ALIKE:
            if other[name] != told[0][name]:
                raise agreed(
                    OptionError(
                        f"Ranks were called with different options: {name} is {told[0][name]} on rank 0 and "
                        f"{other[name]} on rank {rank}. All ranks need the same."
                    )
                )


def _check_graphs(comm: Communicator, graph: Graph | None) -> None:
    """`GraphError` on all ranks where a rank's graph differs from rank 0's. Collective."""
    sets = [] if graph is None else [vertex_set for vertex_set in graph.vertex_sets if len(vertex_set)]
    names = ("ids", "estimate")
    digests = {set_.type.tag: [set_.fingerprint(name) for name in names] for set_ in sets}
    told = comm.share(None if graph is None else digests)
    for rank, other in enumerate(told[1:], start=1):
        if other is None or told[0] is None or other == told[0]:
            continue
        tags = sorted(tag for tag in {*other, *told[0]} if other.get(tag) != told[0].get(tag))
        is_estimate = all(
            tag in other and tag in told[0] and other[tag][0] == told[0][tag][0] for tag in tags
        )
        what = "other estimates" if is_estimate else "other vertices"
        raise agreed(
            GraphError(
                f"The graph of rank {rank} has {what} of {', '.join(tags)} than rank 0's, which is what is "
                "optimized. Pass None there, or the same graph on all ranks."
            )
        )


def _algorithm(wanted: RankRequest) -> tuple[StopRules, Algorithm]:
    """Rules and algorithm, which look at no more than the ranks know together."""
    wanted.check_time_limit()
    if not isinstance(wanted.every, Integral) or wanted.every < 1:
        raise OptionError(f"every is {wanted.every!r}, must be a number of iterations, at least 1.")
    check_transport(wanted.transport)
    return wanted.algorithm(distributed_rules)


def _whole(graph: Graph | None, wanted: RankRequest, options: SolverOptions, comm: Communicator) -> _Whole:
    """On rank 0: the problem, and whether the last optimization was of the same."""
    if graph is None:
        raise GraphError("The graph of rank 0 is what is optimized, and it is None there.")
    if wanted.checkpoint is not None:
        check_path(wanted.checkpoint)
    if wanted.resume is not None:
        read_checkpoint(wanted.resume, graph)
    chosen = wanted.select(graph)
    selection, fixed = fix_gauge(graph, chosen, wanted.fix)
    rough = rough_rows(selection)
    if rough and METHODS.row(wanted.method).has_tolerances:
        make_unit(rough)
        rough = []
    problem = Rewrite(graph, selection).apply(FIXED_COMPONENTS)
    summary = Summary(selection.num_active_vertices, selection.num_active_edges, wanted.method)
    summary.fixed_by_gauge = fixed
    known = (
        session.find(graph, chosen, _key(wanted, options, comm.size)) if not problem.is_other_graph else None
    )
    scattered = None if known is None else known.scattered
    return _Whole(problem, chosen, summary, known, scattered, bool(rough))


def _final_chi2(graph: Graph | None, whole: _Whole | None, summary: Summary) -> float:
    """On rank 0: of the graph; where quaternions were not unit the last iteration's was of other numbers."""
    if graph is None or whole is None or not whole.has_rough_quaternions:
        return summary.final_chi2
    return chi2_within(graph, whole.selection.edges, np.inf)


def _key(wanted: RankRequest, options: SolverOptions, size: int) -> Hashable:
    """What shares and block solvers depend on, besides the graph."""
    fix = wanted.fix if isinstance(wanted.fix, str) else tuple(wanted.fix)
    return fix, wanted.partition, wanted.transport, options, size


def _kept(comm: Communicator, whole: _Whole | None, device: str) -> session.Own | None:
    """What this rank has kept of the last optimization, with the present numbers; None: deal anew.

    Collective.
    """
    known = None if whole is None else whole.known
    number = comm.share(None if known is None else known.number)[0]
    own = None if number is None else session.take(number, comm, device)
    if not all(comm.share(own is not None)):
        if whole is not None:
            whole.known = None
        return None
    assert own is not None
    renewals = None if whole is None or known is None else session.renewals(known, whole.problem.graph)
    comm.deal(renewals).write(own.share)
    return own


def _dealt(comm: Communicator, whole: _Whole | None, wanted: RankRequest, options: SolverOptions) -> Share:
    """This rank's share. Collective."""

    def deal() -> Scattered | None:
        if whole is None:
            return None
        problem = whole.problem
        return scatter(problem.graph, problem.selection, comm.size, options.schur, wanted.partition)

    scattered = together(comm, deal)
    if whole is None or scattered is None:
        return comm.deal(None)
    graph, whole.scattered = whole.problem.graph, scattered
    share = comm.deal(lambda rank: scattered.share(graph, rank))
    if not whole.problem.is_other_graph:
        key = _key(wanted, options, comm.size)
        whole.known = session.known_of(whole.selection, key, scattered, comm)
    return share


def _keep(comm: Communicator, graph: Graph | None, whole: _Whole | None, own: session.Own) -> None:
    """For the next optimization. Collective."""
    known = None if whole is None else whole.known
    number = comm.share(None if known is None else known.number)[0]
    if number is not None:
        session.keep(graph if comm.rank == 0 else None, known, number, comm, own)


def _given(parted: PartedGraph | None, wanted: RankRequest) -> tuple[Summary, Share]:
    """Of a graph that was read in parts: an empty summary and the share."""
    if parted is None:
        raise GraphError("Some ranks have a graph that was read in parts, and this one has none.")
    chosen = {"fix": wanted.fix != "auto", "vertices": wanted.vertices, "edges": wanted.edges}
    for name, value in {**chosen, "level": wanted.level != 0}.items():
        if value is not None and value is not False:
            raise OptionError(f"{name} needs the whole graph on rank 0; this one was read in parts.")
    if wanted.solver.schur == "off":
        raise OptionError("schur='off' needs the whole graph on rank 0; this one was read in parts.")
    if wanted.checkpoint is not None:
        check_path(wanted.checkpoint)
    if wanted.resume is not None:
        read_checkpoint(wanted.resume, parted.share.graph, is_part=True)
    summary = Summary(parted.num_vertices, parted.num_edges, wanted.method)
    summary.fixed_by_gauge = list(parted.held)
    return summary, parted.share


def _own_summary(comm: Communicator, whole: _Whole | None) -> Summary:
    """A summary of this rank's own, with what rank 0 knows of the graph."""
    told: Summary = comm.share(None if whole is None else whole.summary)[0]
    return replace(told, seconds=dict(told.seconds), iterations=[])
