"""Estimates of all ranks, collected on rank 0 in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.scattering import Scattered, Share
from graphopt.graph import Graph
from graphopt.graph.gather import gathered, put
from graphopt.problem.rewrite import Rewrite

T = TypeVar("T")


def _rows(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return values if chosen.all() else gathered(values, np.flatnonzero(chosen))


def _owned(comm: Communicator, share: Share) -> list[np.ndarray]:
    """Per vertex set of the share (n,) bool: free, and this rank owns it. Collective."""
    sets = share.graph.vertex_sets
    free = [~vertex_set.fixed for vertex_set in sets]
    kept = [mask & ~vertex_set.marginalized for vertex_set, mask in zip(sets, free, strict=True)]
    ids = [vertex_set.ids[mask] for vertex_set, mask in zip(sets, kept, strict=True)]
    places = np.searchsorted(share.kept_ids, np.concatenate([np.empty(0, np.int64), *ids]))
    speaker = np.full(len(share.kept_ids), comm.size)
    for rank, others in enumerate(comm.share(places)):
        speaker[others] = np.minimum(speaker[others], rank)
    for mine, stays, own in zip(free, kept, ids, strict=True):
        mine[stays] = speaker[np.searchsorted(share.kept_ids, own)] == comm.rank
    return free


def each_rank(comm: Communicator, own: list[T]) -> Iterator[list[T]]:
    """On rank 0 the pieces of one rank after the other; nothing on the others. Collective."""
    for rank in range(comm.size):
        received = comm.collect(own if comm.rank == rank else None)
        if received is not None:
            yield received[rank]


def collect(comm: Communicator, share: Share, graph: Graph | None, scattered: Scattered | None) -> None:
    """Write all estimates into the graph of rank 0 that was scattered, rank by rank. Collective."""
    own = [
        (None if mine.all() else mine, _rows(vertex_set.estimate, mine))
        for vertex_set, mine in zip(share.graph.vertex_sets, _owned(comm, share), strict=True)
    ]
    for rank, pieces in enumerate(each_rank(comm, own)):
        assert graph is not None and scattered is not None
        for (number, rows), (mine, estimates) in zip(scattered.vertices_of(rank), pieces, strict=True):
            put(graph.vertex_sets[number].estimate, rows if mine is None else rows[mine], estimates)


def tell_all(comm: Communicator, graph: Graph | None) -> None:
    """Write the estimates of rank 0's graph into those of the same vertices on other ranks. Collective."""
    if not any(comm.share(graph is not None)[1:]):
        return
    own = {} if graph is None or comm.rank else {set_.type.tag: set_.estimate for set_ in graph.vertex_sets}
    told = comm.share(own)[0]
    for vertex_set in graph.vertex_sets if graph is not None and comm.rank else ():
        if len(vertex_set):
            vertex_set.estimate[...] = told[vertex_set.type.tag]


def bring_back(
    comm: Communicator,
    share: Share,
    problem: Rewrite | None,
    scattered: Scattered | None,
) -> None:
    """The present estimates of all shares into rank 0's graph. Collective.

    problem, scattered: what rank 0 has scattered, and how; None on other ranks.
    """
    collect(comm, share, None if problem is None else problem.graph, scattered)
    if problem is not None:
        problem.write_back()
