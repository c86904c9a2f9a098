"""Edges that are so few, and have so many vertices, that their lists cost more than their numbers.

    gather    a view per slot and a list per pair of slots: for 8 vertices 8 + 28, each an order of its own,
              several arrays and a launch
    collect   one table of all entries that the edges add to H and b, a launch per slot and per range

A new structure has its lists made by the host, which takes about as long for 20 edges as for 2,000; the
table's time is proportional to its entries. On an H200 a local-inertial window with 25 IMU measurements took
31 ms with the table and 45 with lists, an iteration 0.57 and 0.64.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.problem.structure import EdgeGroup

FEWEST_VERTICES = 3
"""Of an edge; those of two have one list beside their views."""
LIST_SECONDS = 2e-4
"""To order a list, bring it to the device and record its launch, measured on the host of an H200."""
ENTRY_SECONDS = 5e-8
"""Of the table, likewise: they are sorted."""
MOST_OUTPUTS = 128
"""Of a kernel: drivers refuse those with several hundred."""


def is_collected(group: EdgeGroup) -> bool:
    """Whether a table is made faster than the lists of a group would be, and drivers take its kernels."""
    dims = [vertex.tangent_dim for vertex in group.edge_set.type.vertices]
    outputs = list(_outputs(dims))
    if len(dims) < FEWEST_VERTICES or max(outputs) > MOST_OUTPUTS:
        return False
    num_lists = len(dims) * (len(dims) + 1) // 2
    return ENTRY_SECONDS * sum(outputs) * len(group.rows) < LIST_SECONDS * num_lists


def _outputs(dims: list[int]) -> Iterator[int]:
    """Of the kernel of each slot b: H_bb's upper triangle, b_b, and H_ab of the slots a before it."""
    for slot, dim in enumerate(dims):
        yield dim * (dim + 3) // 2 + dim * sum(dims[:slot])
