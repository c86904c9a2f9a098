"""Connected components of the active part of a graph. An edge with several vertices joins all of them."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from graphopt.cpu_kernels import kernels

if TYPE_CHECKING:
    from graphopt.graph.selection import Selection


def connected_components(selection: Selection) -> tuple[int, tuple[np.ndarray, ...]]:
    """Number of components of active vertices, and per vertex set each one's component (-1: inactive)."""
    labels, held = connected_parts(selection, through_fixed=True)
    return len(held), labels


def connected_parts(
    selection: Selection, *, through_fixed: bool
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Components, and (components,) bool: a fixed neighbour or a unary edge determines it.

    through_fixed: False: fixed vertices join nothing and have component -1.
    """
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
