"""Where vertices, edges and parameters keep their numbers: rows of arrays.

    Chunk    arrays of CHUNK rows (estimate, measurement, information, ...) that never move
    Pool     one per type: hands out rows of its present chunk, and starts a new chunk when that one is used
    up

An object holds its chunk and its row, so it reads and writes numpy arrays from its first moment, in a graph
or not. A chunk lives as long as an object has a row in it. `kernels.RowList` moves whole lists of objects to
and from the arrays of a `graphopt.Graph`. The native part is native/bindings/rows.cpp: base classes of the
objects, and short ways (`fast_getter`, `fast_setter`, `fast_method`,
`kernels.fast_property`) through the methods that programs call for each edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.types.base import EdgeType, ParameterType, VertexType

CHUNK = 1024
"""Rows of a chunk."""

_numbers = count()
_Method = TypeVar("_Method", bound=Callable[..., Any])


def fast_getter(column: str) -> Callable[[_Method], _Method]:
    """Decorate a method that returns the one number of a column."""
    return lambda method: kernels.fast_getter(method, column)


def fast_setter(
    column: str, first: int = 0, count: int = -1, forgets_chi2: bool = False
) -> Callable[[_Method], _Method]:
    """Decorate a method that sets `count` numbers (-1: all) of a column."""
    return lambda method: kernels.fast_setter(method, column, first, count, forgets_chi2)


def fast_method(method: _Method) -> _Method:
    """Decorate a method for which there is a short way of the same name."""
    return kernels.fast_method(method, method.__name__)


class Chunk(kernels.Chunk):
    """Columns with a common number of rows, and how many of them objects have taken."""

    __slots__ = ()

    def __init__(self, columns: Mapping[str, Any], num_rows: int):
        super().__init__(num_rows, next(_numbers))
        for name, default in columns.items():
            value = np.asarray(default)
            column = np.empty((num_rows, *value.shape), value.dtype)
            column[:] = value
            setattr(self, name, column)


class Pool:
    """Rows for the objects of one type; `kernels.VertexRow` and `EdgeRow` take theirs from `chunk`."""

    __slots__ = ("_columns", "_num_rows", "chunk")

    def __init__(self, columns: Mapping[str, Any], num_rows: int = CHUNK):
        self._columns = columns
        self._num_rows = num_rows
        self.chunk = Chunk(columns, 0)

    def grow(self) -> Chunk:
        """A new chunk, because the rows of the present one are taken."""
        self.chunk = chunk = Chunk(self._columns, self._num_rows)
        return chunk

    def take(self) -> tuple[Chunk, int]:
        """A row that no other object has."""
        chunk = self.chunk
        row = chunk.take()
        while row < 0:
            chunk = self.grow()
            row = chunk.take()
        return chunk, row

    def take_many(self, num_rows: int) -> Chunk:
        """A chunk of its own for `num_rows` objects."""
        return Chunk(self._columns, num_rows)


def vertex_pool(kind: VertexType, num_rows: int = CHUNK) -> Pool:
    """Rows of a vertex type."""
    return Pool({"estimate": np.array(kind.identity, float), "fixed": False, "marginalized": False}, num_rows)


def edge_pool(kind: EdgeType, measurement: Any, num_rows: int = CHUNK, weights: Any = None) -> Pool:
    """Rows of an edge type: stored default of the measurement, diagonal of the default information."""
    dim = kind.residual_dim
    columns = {
        "measurement": np.array(measurement, float),
        "information": np.eye(dim) if weights is None else np.diag(weights),
        "error": np.zeros(dim),
        "chi2": 0.0,
        "level": np.int32(0),
    }
    return Pool(columns, num_rows)


def parameter_pool(kind: ParameterType) -> Pool:
    """Rows of a parameter type; the values are called `estimate`."""
    return Pool({"estimate": np.array(kind.identity, float)}, 16)
