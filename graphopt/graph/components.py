"""Connected components and adjacency of the active part of a graph.

Vertices are numbered through all vertex sets: `first[set] + row`. An edge with several vertices joins all of
them; a vertex that is fixed does not join what it touches, because nothing moves through it
(`through_fixed=False`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphopt import _native

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
    taken = [
        active if through_fixed else active & ~fixed
        for active, fixed in zip(selection.active, selection.fixed, strict=True)
    ]
    if not taken:
        return 0, ()
    mask = np.concatenate(taken)
    pairs = _pairs(selection, mask)
    labels = _native.component_roots(len(mask), pairs)
    component = np.full(len(mask), -1, np.int64)
    names, compact = np.unique(labels[mask], return_inverse=True)
    component[mask] = compact
    splits = np.cumsum([len(rows) for rows in taken])[:-1]
    return len(names), tuple(np.split(component, splits))


def _pairs(selection: Selection, mask: np.ndarray) -> np.ndarray:
    """(p, 2) pairs of taken vertices that share an edge, enough to connect the taken ones of each edge."""
    first = np.concatenate(
        [[0], np.cumsum([len(vertex_set) for vertex_set in selection.vertex_sets], dtype=np.int64)]
    )
    found = [np.empty((0, 2), np.int64)]
    for edges in selection.edges:
        numbers = edges.vertex_rows + first[list(edges.vertex_sets)]
        inside = mask[numbers]
        hub = numbers[np.arange(len(numbers)), np.argmax(inside, axis=1)]  # the edge's first taken vertex
        for slot in range(1, numbers.shape[1]):
            both = inside[:, slot] & (numbers[:, slot] != hub)
            found.append(np.stack([hub[both], numbers[both, slot]], axis=1))
    return np.concatenate(found)
