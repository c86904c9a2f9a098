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
from graphopt.cpu_kernels import kernels
from graphopt.problem.segments import entries_of
from graphopt.problem.structure import EdgeGroup, SortedEdges, Structure

SIMD = 32
"""Invocations that read together."""
MOVED_BYTES = 64
SAMPLE = 1 << 12
"""Edges of large destinations that are sorted to see, about; a destination is sorted whole."""
MOST_LOOKED_AT = 1 << 14
"""Of these."""
CACHED_BYTES = 1 << 20
"""Of the records of other ends, which every device's cache holds."""
WORTH = 0.9
"""Share of the moves that sorting may leave at most."""


@dataclass(frozen=True)
class EdgeOrder:
    """How the edges of a view's destinations are ordered."""

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
    edges = found.order[entries_of(found.first, sample)[0]]
    by_end = edges[_by_ends(structure, group, np.ascontiguousarray(group.vertex_rows[edges]), slot, other)]
    moves, sorted_moves = (
        sum(_moves(structure, group, order[:MOST_LOOKED_AT], k) for k in others) for order in (edges, by_end)
    )
    taken = other if sorted_moves <= WORTH * moves else None
    return EdgeOrder(slot, taken, moves, sorted_moves)


def ordered(structure: Structure, group: EdgeGroup, slot: int) -> SortedEdges:
    """`Structure.sorted_edges`, by other ends where that is chosen."""
    found, chosen = structure.sorted_edges(group, slot), edge_order(structure, group, slot)
    if chosen is None or chosen.other is None:
        return found
    order = _by_ends(structure, group, group.vertex_rows, slot, chosen.other)
    return SortedEdges(order, found.first, found.blocks)


def _by_ends(
    structure: Structure, group: EdgeGroup, vertex_rows: np.ndarray, slot: int, other: int
) -> np.ndarray:
    """Order (m,) of edges with these rows (m, arity) by the block of a slot, then by the row of another."""
    blocks = structure.vertex_blocks[group.vertex_sets[slot]]
    num_others = len(structure.vertex_blocks[group.vertex_sets[other]])
    return kernels.sort_by_ends(vertex_rows, slot, other, blocks, int(blocks.max(initial=-1)) + 1, num_others)


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
