"""Connected components and adjacency of the active part of a graph.

Vertices are numbered through all vertex sets: `first[set] + row`. An edge with several vertices joins all of
them; a vertex that is fixed does not join what it touches, because nothing moves through it
(`through_fixed=False`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from graphopt.cpu_kernels import kernels

if TYPE_CHECKING:
    from graphopt.graph.selection import Selection


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Pairs of vertices that share an edge, by global number (`first[set] + row`)."""

    first: np.ndarray
    """(num_sets + 1,) int64: global number of each vertex set's row 0, and the number of all vertices."""
    source: np.ndarray
    """(p,) int64."""
    target: np.ndarray
    """(p,) int64."""

    @property
    def num_vertices(self) -> int:
        """Vertices of all sets."""
        return int(self.first[-1])

    def place(self, number: int) -> tuple[int, int]:
        """(vertex set, row) of a global number."""
        set_number = int(np.searchsorted(self.first, number, side="right")) - 1
        return set_number, number - int(self.first[set_number])


def adjacency(selection: Selection) -> Adjacency:
    """Each edge as a star: its first vertex paired with each other one; a unary edge gives no pair."""
    first = np.concatenate(
        [[0], np.cumsum([len(vertex_set) for vertex_set in selection.vertex_sets], dtype=np.int64)]
    )
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for edges in selection.edges:
        numbers = edges.vertex_rows + first[list(edges.vertex_sets)]
        for slot in range(1, numbers.shape[1]):
            sources.append(numbers[:, 0])
            targets.append(numbers[:, slot])
    return Adjacency(first, np.concatenate(sources), np.concatenate(targets))


def connected_components(
    selection: Selection, *, through_fixed: bool = True
) -> tuple[int, tuple[np.ndarray, ...]]:
    """Number of components of the active vertices, and per vertex set the component of each vertex (n,).

    Inactive vertices have component -1. With `through_fixed=False` fixed vertices join nothing and have -1 as
    well.
    """
    labels, held = connected_parts(selection, through_fixed=through_fixed)
    return len(held), labels


def connected_parts(
    selection: Selection, *, through_fixed: bool
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """As `connected_components`, and (components,) bool: a fixed neighbour or a unary edge determines it."""
    taken = [
        active if through_fixed else active & ~fixed
        for active, fixed in zip(selection.active, selection.fixed, strict=True)
    ]
    if not taken:
        return (), np.zeros(0, bool)
    first = list(accumulate(map(len, taken), initial=0))
    edges = [
        (edges.vertex_rows, [first[number] for number in edges.vertex_sets]) for edges in selection.edges
    ]
    labels, held = kernels.connected_parts(np.concatenate(taken), edges)
    return tuple([labels[begin:end] for begin, end in pairwise(first)]), held
