"""Edge sets from whole arrays: their columns are taken as they are, or filled in one native pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.graph.columns import Columns, Repeated
from graphopt.graph.sets import INFORMATION_KIND, EdgeSet
from graphopt.types.base import EdgeType

Slot = tuple[np.ndarray | tuple[int, int], np.ndarray]
"""(table, index): edge i has the vertex table[index[i]], or first + index[i] of a table (first, count)."""


def edge_set_of(
    kind: EdgeType, sequence: np.ndarray, vertices: np.ndarray | Sequence[Slot], **columns: np.ndarray
) -> EdgeSet:
    """Edges of a type, whose arrays the set owns from now on; who made them has checked them.

    sequence: (m,) int64, ascending. vertices: (m, arity) int64 ids, or per slot where they are. columns: of
    `EdgeSet`, C-contiguous; information is the identity, kernel_width 1 and all others 0 where they are not
    given.
    """
    count, dim = len(sequence), kind.residual_dim
    for name, shape, dtype in (
        ("measurement", (kind.measurement_dim,), np.float64),
        ("kernel", (), np.int32),
        ("level", (), np.int32),
        ("parameters", (len(kind.parameters),), np.int64),
    ):
        if name not in columns:
            columns[name] = np.zeros((count, *shape), dtype)
    repeated = {
        name: row
        for name, row in (("information", _identity(dim)), ("kernel_width", Repeated(np.ones(()))))
        if name not in columns
    }
    ids = vertices
    if not isinstance(ids, np.ndarray):
        ids = np.empty((count, len(vertices)), np.int64)
        kernels.fill_edges(list(vertices), ids)
    return EdgeSet(kind, Columns.holding({"sequence": sequence, "vertices": ids, **columns}, repeated))


@cache
def _identity(dim: int) -> Repeated:
    return Repeated(np.eye(dim), {INFORMATION_KIND: "identity"})
