"""Estimates of all ranks, collected on rank 0 in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.scattering import Share
from graphopt.graph import Graph
from graphopt.solver.held import Problem


@dataclass(frozen=True, eq=False)
class Piece:
    """Estimates of vertices of one type."""

    tag: str
    ids: np.ndarray
    """(n,) int64."""
    estimates: np.ndarray
    """(n, storage_dim)."""

    def write(self, graph: Graph) -> None:
        """Into a graph that has these vertices."""
        numbers, rows = graph.find_vertices(self.ids)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            chosen = numbers == number
            graph.vertex_sets[number].estimate[rows[chosen]] = self.estimates[chosen]


def own_pieces(comm: Communicator, share: Share) -> list[Piece]:
    """Estimates of the free vertices that this rank speaks for: each vertex has one such rank. Collective."""
    graph = share.graph
    free = [~vertex_set.fixed for vertex_set in graph.vertex_sets]
    kept = [mask & ~vertex_set.marginalized for vertex_set, mask in zip(graph.vertex_sets, free, strict=True)]
    ids = np.concatenate(
        [
            np.empty(0, np.int64),
            *(vertex_set.ids[mask] for vertex_set, mask in zip(graph.vertex_sets, kept, strict=True)),
        ]
    )
    places = np.searchsorted(share.kept_ids, ids)
    speaker = np.full(len(share.kept_ids), comm.size)
    for rank, others in enumerate(comm.share(places)):
        speaker[others] = np.minimum(speaker[others], rank)
    pieces = []
    for vertex_set, mask, stays in zip(graph.vertex_sets, free, kept, strict=True):
        mine = mask.copy()
        mine[stays] = speaker[np.searchsorted(share.kept_ids, vertex_set.ids[stays])] == comm.rank
        pieces.append(Piece(vertex_set.type.tag, vertex_set.ids[mine], vertex_set.estimate[mine]))
    return pieces


def each_rank(comm: Communicator, own: list[Piece]) -> Iterator[list[Piece]]:
    """On rank 0 the pieces of one rank after the other; nothing on the others. Collective."""
    for rank in range(comm.size):
        sent = [own if comm.rank == rank and to == 0 else None for to in range(comm.size)]
        received = comm.exchange(sent)
        if comm.rank == 0:
            yield received[rank]


def collect(comm: Communicator, share: Share, graph: Graph | None) -> None:
    """Write all estimates into rank 0's `graph`, one rank's after the other. Collective."""
    for pieces in each_rank(comm, own_pieces(comm, share)):
        assert graph is not None
        for piece in pieces:
            piece.write(graph)


def tell_all(comm: Communicator, graph: Graph | None) -> None:
    """Write the estimates of rank 0's graph into those that other ranks have. Collective."""
    if not any(comm.share(graph is not None)[1:]):
        return
    own = []
    if comm.rank == 0 and graph is not None:
        own = [
            Piece(vertex_set.type.tag, vertex_set.ids, vertex_set.estimate)
            for vertex_set in graph.vertex_sets
        ]
    for piece in comm.share(own)[0]:
        if comm.rank and graph is not None:
            piece.write(graph)


def bring_back(comm: Communicator, share: Share, graph: Graph | None, problem: Problem | None) -> None:
    """The present estimates of all shares into the graphs of those who have one. Collective.

    problem: what rank 0 has dealt; None on other ranks.
    """
    collect(comm, share, None if problem is None else problem.graph)
    if problem is not None:
        problem.bring_back()
    tell_all(comm, graph)
