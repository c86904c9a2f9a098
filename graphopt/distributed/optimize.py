"""`optimize` over the ranks of a communicator.

    rank 0 has the graph   ->  shares are dealt   ->  every rank runs the same algorithm over
    `DistributedBlockSolver`   ->  estimates are collected into rank 0's graph, and told to graphs of others

Where fewer ranks are expected to be faster (`worth`), those work, and the others follow: they hear of each
iteration, and may stop it. One rank alone optimizes as `graphopt.optimize` does.

What looks at the whole graph at once (convex relaxation, multi-start, re-triangulation of landmarks) is left
out of method "auto" here: with `distributed_rules(options)` one rank does the same steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import graphopt.distributed.session as session
from graphopt.distributed.call import optimize_rank, solve, told, worth_of_threads
from graphopt.distributed.communicator import (
    ThreadCommunicator,
    is_agreed,
    run_as_threads,
    sentence_of,
)
from graphopt.distributed.devices import rank_devices
from graphopt.distributed.mpi import MpiCommunicator, is_mpi
from graphopt.distributed.options import RankChanges, RankRequest, names_of
from graphopt.errors import OptionError
from graphopt.graph import Graph
from graphopt.graph.bounds import constraints_of
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.computed import check_computed, materializes
from graphopt.optimizer.fallback import or_on_the_cpu
from graphopt.optimizer.request import check_graph
from graphopt.optimizer.summary import Summary
from graphopt.problem.inline import INLINED_VALUES
from graphopt.problem.rewrite import Rewrite
from graphopt.suggestions import knowing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


@knowing_options(
    [name for kind in (RankRequest, SolverOptions) for name in names_of(kind)],
    {"robust": "Graduated non-convexity runs on one rank: graphopt.optimize has it."},
)
def optimize(
    graph: Graph | None,
    comm: Any = None,
    method: str = "auto",
    max_iterations: int | None = None,
    **changes: Unpack[RankChanges],
) -> Summary:
    """Optimize rank 0's graph over a communicator, or over several devices of this process. Collective.

    All ranks call this with the same options (callback, stop and device may differ), and all get the same
    summary.

    graph: that of rank 0 counts and is dealt out; others may pass None, and a graph of theirs gets the result
        too.
    comm: an mpi4py communicator such as `MPI.COMM_WORLD`. None: a thread of this process for each device that
        `device` names, as in "vulkan:0,vulkan:1". With `comm`, such a list gives one to each rank of a host.
    changes: options, fix, level, vertices, edges, time_limit, callback, stop, on_interrupt, throw and verbose
        as in `graphopt.optimize`; fields of `SolverOptions`; and those of `RankOptions`: partition,
        transport, checkpoint, every, resume, ranks. computed is "inline", or "auto", which is the same here:
        materialized values are evaluated by one rank.
    Raises what one rank raises during set-up on all of them: `RankError` names it.
    """
    request = RankRequest.of(method, max_iterations, changes)
    check_graph(graph, request.callback, may_be_none=True)
    check_computed(graph, request.solver)
    if not isinstance(graph, Graph):
        return or_on_the_cpu(partial(_optimize, comm), graph, request)
    constraints = constraints_of(graph)
    if constraints is not None:
        raise OptionError(f"Ranks do not keep to {constraints}: use graphopt.optimize on one device.")
    with graph.held_still():
        if not graph.has_computed():
            return or_on_the_cpu(partial(_optimize, comm), graph, request)
        return _with_values_inlined(graph, comm, request)


def _with_values_inlined(graph: Graph, comm: Any, request: RankRequest) -> Summary:
    """Of a graph with computed values."""
    graph.compute()
    rewrite = Rewrite(graph, request.select(graph))
    if materializes(graph, rewrite.selection, request.solver):
        raise OptionError(
            "Computed values that are materialized are evaluated by one rank. Use computed='inline', or "
            "graphopt.optimize."
        )
    rewrite.apply(INLINED_VALUES)
    chosen = rewrite.selection.edges if rewrite.selection.chosen_by_edges else ()
    request = replace(
        request, level=-1, vertices=None, edges={edges.edge_set: edges.rows for edges in chosen} or None,
        callback=rewrite.callback(request.callback), solver=replace(request.solver, computed="auto"),
    )  # fmt: skip
    try:
        return or_on_the_cpu(partial(_optimize, comm), rewrite.graph, request)
    finally:
        graph.compute()


def _optimize(comm: Any, graph: Graph | None, request: RankRequest) -> Summary:
    if comm is None:
        if request.transport != "auto" and len(rank_devices(request.solver.device)) == 1:
            raise OptionError(
                f"transport is '{request.transport}', but one device has nobody to talk to: name several, as "
                "in device='vulkan:0,vulkan:1', or give comm."
            )
        return _in_threads(graph, request)
    if not is_mpi(comm):
        if not hasattr(comm, "share"):
            raise OptionError(f"comm is {comm!r}, expected an mpi4py communicator such as MPI.COMM_WORLD.")
        return optimize_rank(graph, comm, request)
    ranks = MpiCommunicator.of(comm)
    try:
        summary, signals = solve(graph, ranks, request)
    except BaseException as error:
        if not is_agreed(error) and ranks.size > 1:
            kept = f" The last checkpoint is in {request.checkpoint}." if request.checkpoint else ""
            ranks.fail(sentence_of(ranks.rank, error) + kept)
        raise
    return told(summary, signals, request)


def _in_threads(graph: Graph | None, request: RankRequest) -> Summary:
    names = rank_devices(request.solver.device)
    size = len(names)
    if size == 1:
        return optimize_rank(graph, ThreadCommunicator(), request)
    worth = None if graph is None else worth_of_threads(graph, request, names)
    if worth is not None and worth.is_alone:  # without threads that wait
        first = replace(request, solver=replace(request.solver, device=names[0]))
        summary = optimize_rank(graph, ThreadCommunicator(), first, worth)
        summary.partition["of"] = size
        return summary

    def work(comm: ThreadCommunicator) -> Summary:
        quiet = request if comm.rank == 0 else replace(request, callback=None, stop=None)
        return optimize_rank(graph if comm.rank == 0 else None, comm, quiet, worth)

    return run_as_threads(size, work, session.ranks_of(graph, size))[0]
