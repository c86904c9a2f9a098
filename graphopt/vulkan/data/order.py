"""The order of the edges of one destination in a view: that of the graph, or by their other ends.

A group of SIMD invocations reads the records of its edges' other vertices together, and memory moves
MOVED_BYTES at a time. Which edges are together is the order's doing where a destination has more of them than
a workgroup takes, as a camera with its points; elsewhere a workgroup has all edges of a destination whatever
their order. So for views with such destinations the moves of a group are counted in both orders, and by
other ends is taken where that saves a tenth. Records that a device's cache holds are read from there in any
order. It depends on the graph only: the same bits in every run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.codegen.gpu import TILE
from graphopt.codegen.gpu.packed_products import packed_record_dim
from graphopt.problem.segments import entries_of
from graphopt.problem.structure import EdgeGroup, SortedEdges, Structure

SIMD = 32
"""Invocations that read together."""
MOVED_BYTES = 64
SAMPLE = 1 << 12
"""Edges that are looked at, about."""
CACHED_BYTES = 1 << 20
"""Of the records of other ends, which every device's cache holds."""
WORTH = 0.9
"""Share of the moves that sorting may leave at most."""


@dataclass(frozen=True)
class EdgeOrder:
    """How the edges of a view's large destinations are ordered."""

    slot: int
    other: int | None
    """Slot of the other end that they are sorted by, None: as in the graph."""
    moves: float
    """Of MOVED_BYTES per edge, for the records of other ends, as in the graph."""
    sorted_moves: float
    """The same sorted by other ends."""


def edge_order(structure: Structure, group: EdgeGroup, slot: int) -> EdgeOrder | None:
    """The order of a view; None: there is nothing to choose, or nothing to gain."""
    if structure.is_evaluated_once:
        return None
    others = [k for k in range(len(group.vertex_sets)) if k != slot]
    sets = structure.selection.vertex_sets
    records = [_record_bytes(structure, group, k) * len(sets[group.vertex_sets[k]]) for k in others]
    if sum(records) <= CACHED_BYTES:
        return None
    found = structure.sorted_edges(group, slot)
    counts = np.diff(found.first.astype(np.int64))
    large = np.flatnonzero(counts > TILE)
    if not len(large):
        return None
    sample = large[:: max(1, int(counts[large].sum()) // SAMPLE)]
    other = max(others, key=lambda k: (len(structure.vertex_blocks[group.vertex_sets[k]]), -k))
    places, by_end = _sorted(found, sample, group, other)
    edges = found.order[places]
    moves, sorted_moves = (
        sum(_moves(structure, group, order, k) for k in others) for order in (edges, by_end)
    )
    taken = other if sorted_moves <= WORTH * moves else None
    return EdgeOrder(slot, taken, moves, sorted_moves)


def ordered(structure: Structure, group: EdgeGroup, slot: int) -> SortedEdges:
    """`Structure.sorted_edges` with the edges of large destinations in the order that is chosen."""
    found, chosen = structure.sorted_edges(group, slot), edge_order(structure, group, slot)
    if chosen is None or chosen.other is None:
        return found
    large = np.flatnonzero(np.diff(found.first.astype(np.int64)) > TILE)
    places, by_end = _sorted(found, large, group, chosen.other)
    order = found.order.copy()
    order[places] = by_end
    return SortedEdges(order, found.first, found.blocks)


def _sorted(
    found: SortedEdges, destinations: np.ndarray, group: EdgeGroup, other: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where the edges of some destinations are in the view; these edges by the rows of their other ends."""
    places, counts = entries_of(found.first, destinations)
    edges = found.order[places]
    keys = np.repeat(destinations, counts).astype(np.uint64) << np.uint64(32)
    keys |= group.vertex_rows[edges, other].astype(np.uint64)
    return places, edges[np.argsort(keys, kind="stable")]


def _moves(structure: Structure, group: EdgeGroup, edges: np.ndarray, other: int) -> float:
    """Moves per edge that groups of edges, in this order, take for the records of a slot."""
    edges = edges[: len(edges) // SIMD * SIMD]
    nbytes = _record_bytes(structure, group, other)
    first = group.vertex_rows[edges, other].astype(np.int64) * nbytes
    begin, end = first // MOVED_BYTES, (first + nbytes - 1) // MOVED_BYTES
    longest = int((end - begin).max()) + 1
    touched = np.minimum(begin[:, None] + np.arange(longest), end[:, None])
    touched = np.sort(touched.reshape(-1, SIMD * longest), axis=1)
    return (len(touched) + np.count_nonzero(np.diff(touched, axis=1))) / len(edges)


def _record_bytes(structure: Structure, group: EdgeGroup, slot: int) -> int:
    """What an edge reads of the vertex in a slot."""
    vertex = structure.selection.vertex_sets[group.vertex_sets[slot]].type
    return 4 * packed_record_dim(vertex.storage_dim, vertex.tangent_dim, "mixed")
