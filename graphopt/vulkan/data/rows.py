"""The order of a vertex set's records on the device: that of the graph, or by their neighbours.

The product at a camera reads the records of its points. Where these are spread over more memory than a
device's cache holds, each point comes from memory once per camera that sees it; where points that the same
cameras see follow each other, they come once for all of them. Photographs and maps have points in any order,
so eliminated vertices whose records do not fit into a cache get places by their neighbours: by the lowest row
among these, then by the highest. Blocks, and so H and all sums, are as they were.

Only `estimates` knows rows of the graph then; everything else on the device sees a structure whose rows are
those of the records (`Structure.renumbered`).
"""

from __future__ import annotations

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure

CACHED_BYTES = 1 << 22
"""Of the records of a set, estimates and vectors, which devices' caches hold."""
MOST_KEYS = 1 << 32
"""That are sorted by, a pair of neighbours each."""
SAMPLE = 1 << 13
"""Pairs of rows with the same lowest neighbour that are looked at, about."""
NEAR = 0.1
"""Of all rows, how many lie between two of such a pair up to which the graph's order is kept."""


def in_record_order(structure: Structure) -> Structure:
    """The structure, with rows in another order where that pays."""
    is_simple = not (structure.terms or structure.external)
    if not is_simple or not structure.has_schur or structure.is_evaluated_once:
        return structure
    orders = {}
    for number, vertex_set in enumerate(structure.selection.vertex_sets):
        kind = vertex_set.type
        if 8 * (kind.storage_dim + kind.tangent_dim) * len(vertex_set) <= CACHED_BYTES:
            continue
        is_eliminated = int(structure.vertex_blocks[number].max(initial=-1)) >= structure.num_kept
        order = _order(structure, number) if is_eliminated else None
        if order is not None:
            orders[number] = order
    return structure.renumbered(orders) if orders else structure


def _order(structure: Structure, number: int) -> np.ndarray | None:
    """(n,) uint32: rows of a vertex set by their neighbours; None: they are in such an order already."""
    found = _most_seen(structure, number)
    if found is None:
        return None
    group, slot, other = found
    num_rows = len(structure.selection.vertex_sets[number])
    num_others = len(structure.selection.vertex_sets[group.vertex_sets[other]])
    if num_others**2 >= MOST_KEYS - 2:
        return None
    edges = structure.sorted_edges(group, slot)
    keys = kernels.neighbour_keys(
        group.vertex_rows, slot, other, edges.order, edges.first, num_rows, num_others
    )
    own = np.arange(num_rows, dtype=np.int32)[:, None]
    order = kernels.sort_by_key(own, 0, keys, num_others**2 + 1)[0]
    between = np.diff(order[:: 1 + num_rows // SAMPLE].astype(np.int64))
    return None if np.median(np.abs(between)) <= NEAR * num_rows else order


def _most_seen(structure: Structure, number: int) -> tuple[EdgeGroup, int, int] | None:
    """The largest group with the set in a slot and kept vertices in another one: group and both slots."""
    best, most = None, 0
    for group in structure.groups:
        for slot, own in enumerate(group.vertex_sets):
            if own != number or len(group.rows) <= most:
                continue
            others = [k for k, other in enumerate(group.vertex_sets) if other != number]
            if others:
                largest = max(others, key=lambda k: len(structure.vertex_blocks[group.vertex_sets[k]]))
                best, most = (group, slot, largest), len(group.rows)
    return best
