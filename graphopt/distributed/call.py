"""One optimization, on each of its ranks.

all         agree on options, devices and graphs; rank 0 says how many work (`worth`)
one alone   optimizes as `graphopt.optimize` does
several     get shares, run the same algorithm over `DistributedBlockSolver`, and bring estimates back
the rest    follow: they hear of each iteration, and may stop it
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral

import numpy as np

import graphopt.distributed.session as session
from graphopt.distributed.checkpoint import check_path, read_checkpoint
from graphopt.distributed.communicator import (
    Communicator,
    agreed,
    is_agreed,
    together,
)
from graphopt.distributed.devices import (
    Assignment,
    assign_device,
    assignments_of_threads,
    threads_of_ranks,
)
from graphopt.distributed.gathering import bring_back, tell_all
from graphopt.distributed.iterations import EachIteration
from graphopt.distributed.options import RankRequest, distributed_rules
from graphopt.distributed.report import describe_alone, describe_ranks
from graphopt.distributed.scattering import Scattered, Share, scatter
from graphopt.distributed.signals import AgreedSignals
from graphopt.distributed.solver import make_solver
from graphopt.distributed.transport import check_transport
from graphopt.distributed.worth import RankPower, Worth, check_ranks, ranks_worth
from graphopt.errors import GraphError, GraphOptError, OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.algorithm import Algorithm
from graphopt.optimizer.ending import chi2_within, close_seconds, raise_if_unusable
from graphopt.optimizer.methods import METHODS
from graphopt.optimizer.optimize import optimize as optimize_alone
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.progress import tell_end, tell_start, watching
from graphopt.optimizer.run import Callback, run
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.optimizer.unit_quaternions import make_unit, rough_rows
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.rewrite import Rewrite
from graphopt.solver.configurations import configured


@dataclass(eq=False)
class _Whole:
    """What rank 0 knows."""

    problem: Rewrite
    selection: Selection
    """Before anything was held for the gauge."""
    summary: Summary
    worth: Worth
    """How many ranks take part."""
    known: session.Known | None = None
    """What the last optimization has left, and what is kept for the next one."""
    scattered: Scattered | None = None
    """How it is partitioned."""
    has_rough_quaternions: bool = False
    """See `optimizer.unit_quaternions`."""


def optimize_rank(
    graph: Graph | None, comm: Communicator, request: RankRequest, worth: Worth | None = None
) -> Summary:
    """What each rank does. worth: where it is known how many ranks take part."""
    return told(*solve(graph, comm, request, worth), request)


def worth_of_threads(graph: Graph, request: RankRequest, names: Sequence[str]) -> Worth:
    """How many of these devices of this process take part."""
    options = configured(request.solver)
    check_ranks(request.ranks, options)
    selection, _ = fix_gauge(graph, request.select(graph), request.fix)
    powers = [_power(each) for each in assignments_of_threads(names)]
    return ranks_worth(selection, options, powers, request.ranks)


def _power(own: Assignment) -> RankPower:
    """What a rank computes with."""
    return RankPower(own.device, own.threads, own.threads_alone)


def told(summary: Summary, signals: AgreedSignals, request: RankRequest) -> Summary:
    """The summary, or what it means for the caller; all ranks do the same, and none waits any more."""
    signals.raise_at_last(summary)
    raise_if_unusable(summary, request.throw)
    return summary


def solve(
    graph: Graph | None, comm: Communicator, request: RankRequest, worth: Worth | None = None
) -> tuple[Summary, AgreedSignals]:
    """The summary, and what has ended the run early; nothing is raised for that yet. Collective."""
    start = time.perf_counter()
    _check_agreement(comm, request)
    together(comm, lambda: _algorithm(request))
    options = together(comm, lambda: configured(request.solver))
    together(comm, lambda: check_ranks(request.ranks, options))
    assignment = assign_device(comm, options.device)
    signals = together(
        comm, lambda: AgreedSignals(comm, request.stop, request.time_limit, start, request.on_interrupt)
    )
    call = RankCall(comm, graph, request, options, assignment, signals, start, worth)
    with signals.catching_interrupts(), threads_of_ranks(assignment.threads):
        _check_graphs(comm, graph)
        ranks = comm.share(call.ranks())
        whole = together(comm, lambda: call.whole(ranks) if comm.rank == 0 else None)
        told_worth, empty = comm.share(None if whole is None else (whole.worth, whole.summary))[0]
        summary: Summary = replace(empty, seconds=dict(empty.seconds), iterations=[])
        if told_worth.is_alone:
            summary = call.alone(told_worth)
        else:
            summary = call.in_group(summary, whole, told_worth)
    summary.certifier = None if graph is None else request.certifier(graph)
    return summary, signals


@dataclass(eq=False)
class RankCall:
    """One rank's part of an optimization."""

    comm: Communicator
    """All ranks."""
    graph: Graph | None
    request: RankRequest
    options: SolverOptions
    assignment: Assignment
    signals: AgreedSignals
    start: float
    worth: Worth | None
    """Where it is known before."""

    def ranks(self) -> RankPower:
        """What this rank brings."""
        return _power(self.assignment)

    def whole(self, ranks: Sequence[RankPower]) -> _Whole:
        """On rank 0: the problem, how many ranks it is worth, and whether the last one was of the same."""
        graph, request = self.graph, self.request
        if graph is None:
            raise GraphError("The graph of rank 0 is what is optimized, and it is None there.")
        if request.checkpoint is not None:
            check_path(request.checkpoint)
        if request.resume is not None:
            read_checkpoint(request.resume, graph)
        chosen = request.select(graph)
        selection, fixed = fix_gauge(graph, chosen, request.fix)
        summary = Summary(selection.num_active_vertices, selection.num_active_edges, request.method)
        summary.fixed_by_gauge = fixed
        worth = self.worth or ranks_worth(selection, self.options, ranks, request.ranks)
        problem = Rewrite(graph, selection)
        if worth.is_alone:
            return _Whole(problem, chosen, summary, worth)
        rough = rough_rows(selection)
        if rough and METHODS.row(request.method).has_tolerances:
            make_unit(rough)
            rough = []
        problem.apply(FIXED_COMPONENTS)
        known = None
        if not problem.is_other_graph:
            known = session.find(graph, chosen, self._key(worth.count))
        scattered = None if known is None else known.scattered
        return _Whole(problem, chosen, summary, worth, known, scattered, bool(rough))

    # ---------------------------------------------------------------- one rank

    def alone(self, worth: Worth) -> Summary:
        """Rank 0 optimizes as `graphopt.optimize` does, and the others follow. Collective."""
        comm, signals = self.comm, self.signals
        each = EachIteration(comm, self.graph, signals, self.request.callback, self.request)
        result: Summary | GraphOptError
        if comm.rank or self.graph is None:
            result = signals.follow(each.heard)
        else:
            each.tells = True
            with threads_of_ranks(self.assignment.threads_alone):
                result = self._alone(self.graph, each.to_call())
            signals.tell("end", result)
        tell_all(comm, self.graph)
        if isinstance(result, GraphOptError):
            raise agreed(result)
        summary = replace(result, seconds=dict(result.seconds), iterations=list(result.iterations))
        describe_alone(summary, comm, worth)
        return summary

    def _alone(self, graph: Graph, callback: Callback | None) -> Summary | GraphOptError:
        """On rank 0; an error of the library is for all."""
        request, signals = self.request, self.signals
        solver = {each.name: getattr(request.solver, each.name) for each in fields(SolverOptions)}
        solver["device"] = self.assignment.device
        try:
            summary = optimize_alone(
                graph, request.method, request.max_iterations, options=request.options, fix=request.fix,
                level=request.level, vertices=request.vertices, edges=request.edges, callback=callback,
                stop=signals, on_interrupt="stop", verbose=request.verbose, **solver,
            )  # fmt: skip
        except GraphOptError as error:
            if is_agreed(error):  # others raise it, too, and do not follow any more
                raise
            return error
        if summary.termination is TerminationType.USER_STOP and signals.reason is not None:
            summary.termination = signals.reason
        return summary

    # ---------------------------------------------------------------- several ranks

    def in_group(self, summary: Summary, whole: _Whole | None, worth: Worth) -> Summary:
        """The first ranks optimize, and the others follow. Collective."""
        comm, signals, request = self.comm, self.signals, self.request
        group = comm.group(worth.count)
        watched = watching(summary, request.verbose and comm.rank == 0, request.callback)
        each = EachIteration(comm, self.graph, signals, watched, request)
        each.tells = worth.count < comm.size
        if group is None:
            summary = signals.follow(each.heard)
            summary = replace(summary, seconds=dict(summary.seconds), iterations=list(summary.iterations))
        else:
            self._run(group, summary, whole, each, worth)
            if each.tells:
                signals.tell("end", summary)
        tell_all(comm, self.graph)
        if comm.rank == 0:
            tell_end(summary, request.verbose)
        return summary

    def _run(
        self, comm: Communicator, summary: Summary, whole: _Whole | None, each: EachIteration, worth: Worth
    ) -> None:
        """What a rank of the group does."""
        own = self._prepared(comm, summary, whole, worth.count)
        share, solver = own.share, own.solver
        rules, algorithm = _algorithm(self.request)
        problem = None if whole is None else whole.problem
        each.bring_back = lambda: bring_back(comm, share, problem, None if whole is None else whole.scattered)
        if comm.rank == 0:
            tell_start(summary, self.request.verbose)
        waited, begun = comm.seconds, time.perf_counter()
        run(algorithm, rules, solver, summary, self.signals, each.to_call())
        waited, iterating = comm.seconds - waited, time.perf_counter() - begun
        each.bring_back()
        summary.final_chi2 = comm.share(_final_chi2(self.graph, whole, summary))[0]
        _keep(comm, self.graph, whole, own)
        summary.take_description(solver.describe())
        close_seconds(summary.seconds, time.perf_counter() - self.start)
        describe_ranks(summary, comm, share, solver, iterating, waited)
        summary.partition |= {"ranks": worth.count, "of": self.comm.size, "reason": worth.reason}

    def _prepared(
        self, comm: Communicator, summary: Summary, whole: _Whole | None, count: int
    ) -> session.Own:
        """This rank's share and block solver, of the last optimization where that was alike. Collective."""
        device, request = self.assignment.device, self.request
        own = _kept(comm, whole, device)
        if own is not None:
            summary.seconds["analyze"] = time.perf_counter() - self.start
            together(comm, own.solver.refresh)
        else:
            with threads_of_ranks(self.assignment.threads_alone if comm.rank == 0 else None):
                share = self._scattered(comm, whole, count)
                comm.share(None)  # ranks that are threads pick their edges with those threads too
            summary.seconds["analyze"] = time.perf_counter() - self.start
            solver = make_solver(share, replace(self.options, device=device), comm, request.transport)
            own = session.Own(comm, device, share, solver)
        summary.seconds["prepare"] = time.perf_counter() - self.start - summary.seconds["analyze"]
        return own

    def _scattered(self, comm: Communicator, whole: _Whole | None, count: int) -> Share:
        """This rank's share. Collective."""

        def scattered_graph() -> Scattered | None:
            if whole is None:
                return None
            selection = whole.problem.selection
            return scatter(selection, comm.size, self.options.schur, self.request.partition)

        scattered = together(comm, scattered_graph)
        if whole is None or scattered is None:
            return comm.scatter(None)
        graph, whole.scattered = whole.problem.graph, scattered
        share = comm.scatter(lambda rank: scattered.share(graph, rank))
        if not whole.problem.is_other_graph:
            whole.known = session.known_of(whole.selection, self._key(count), scattered, comm)
        return share

    def _key(self, count: int) -> Hashable:
        """What shares and block solvers depend on, besides the graph."""
        request = self.request
        fix = request.fix if isinstance(request.fix, str) else tuple(request.fix)
        return fix, request.partition, request.transport, self.options, count


_ALIKE = (
    "method", "max_iterations", "options", "solver", "partition", "transport", "checkpoint", "every", "ranks",
)  # fmt: skip
"""Options that lead all ranks the same way."""


def _check_agreement(comm: Communicator, request: RankRequest) -> None:
    """`OptionError` on all ranks where one has another option: they would wait for each other. Collective."""
    alike = replace(request, solver=replace(request.solver, device=""))
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


def _algorithm(request: RankRequest) -> tuple[StopRules, Algorithm]:
    """Rules and algorithm, which look at no more than the ranks know together."""
    request.check_time_limit()
    if not isinstance(request.every, Integral) or request.every < 1:
        raise OptionError(f"every is {request.every!r}, must be a number of iterations, at least 1.")
    check_transport(request.transport)
    return request.algorithm(distributed_rules)


def _final_chi2(graph: Graph | None, whole: _Whole | None, summary: Summary) -> float:
    """On rank 0: of the graph; where quaternions were not unit the last iteration's was of other numbers."""
    if graph is None or whole is None or not whole.has_rough_quaternions:
        return summary.final_chi2
    return chi2_within(graph, whole.selection.edges, np.inf)


def _kept(comm: Communicator, whole: _Whole | None, device: str) -> session.Own | None:
    """What this rank has kept of the last optimization, with the present numbers; None: scatter anew.

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
    comm.scatter(renewals).write(own.share)
    return own


def _keep(comm: Communicator, graph: Graph | None, whole: _Whole | None, own: session.Own) -> None:
    """For the next optimization. Collective."""
    known = None if whole is None else whole.known
    number = comm.share(None if known is None else known.number)[0]
    if number is not None:
        session.keep(graph if comm.rank == 0 else None, known, number, comm, own)
