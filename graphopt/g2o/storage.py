"""Where vertices, edges and parameters keep their numbers: rows of arrays.

    Chunk    arrays of CHUNK rows (estimate, measurement, information, ...) that never move
    Pool     one per type: hands out rows of its present chunk, and starts a new chunk when that one is used
    up

An object holds its chunk and its row, so it reads and writes numpy arrays from its first moment, in a graph
or not. A chunk lives as long as an object has a row in it. `RowList` moves whole lists of objects to and
from the arrays of a `graphopt.Graph`, with one copy per chunk. Rows are handed out by `list.pop`, which is
safe between threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from graphopt.types.base import EdgeType, ParameterType, VertexType

CHUNK = 1024
"""Rows of a chunk."""

_numbers = count()


class Chunk:
    """Arrays with a common number of rows; `free` are those that no object has yet."""

    __slots__ = (
        "chi2",
        "error",
        "estimate",
        "fixed",
        "free",
        "information",
        "level",
        "marginalized",
        "measurement",
        "number",
    )

    def __init__(self, columns: Mapping[str, Any], num_rows: int):
        self.number = next(_numbers)
        self.free = list(range(num_rows - 1, -1, -1))
        for name, default in columns.items():
            value = np.asarray(default)
            column = np.empty((num_rows, *value.shape), value.dtype)
            column[:] = value
            setattr(self, name, column)


class Pool:
    """Rows for the objects of one type."""

    __slots__ = ("_columns", "_num_rows", "chunk")

    def __init__(self, columns: Mapping[str, Any], num_rows: int = CHUNK):
        self._columns = columns
        self._num_rows = num_rows
        self.chunk = Chunk(columns, 0)

    def take(self) -> tuple[Chunk, int]:
        """A row that no other object has."""
        while True:
            chunk = self.chunk
            try:
                return chunk, chunk.free.pop()
            except IndexError:
                self.chunk = Chunk(self._columns, self._num_rows)

    def take_many(self, num_rows: int) -> Chunk:
        """A chunk of its own for `num_rows` objects."""
        chunk = Chunk(self._columns, num_rows)
        chunk.free.clear()
        return chunk


def vertex_pool(kind: VertexType, num_rows: int = CHUNK) -> Pool:
    """Rows of a vertex type."""
    return Pool({"estimate": np.array(kind.identity, float), "fixed": False, "marginalized": False}, num_rows)


def edge_pool(kind: EdgeType, measurement: Any, num_rows: int = CHUNK) -> Pool:
    """Rows of an edge type; `measurement` is the stored default."""
    dim = kind.residual_dim
    columns = {
        "measurement": np.array(measurement, float),
        "information": np.eye(dim),
        "error": np.zeros(dim),
        "chi2": 0.0,
        "level": np.int32(0),
    }
    return Pool(columns, num_rows)


def parameter_pool(kind: ParameterType) -> Pool:
    """Rows of a parameter type; the values are called `estimate`."""
    return Pool({"estimate": np.array(kind.identity, float)}, 16)


class RowList:
    """Rows of a list of objects, for moving all their numbers at once."""

    __slots__ = ("_parts", "size")

    def __init__(self, objects: Sequence[Any]):
        self.size = len(objects)
        numbers = np.fromiter((one._chunk.number for one in objects), np.int64, self.size)
        rows = np.fromiter((one._row for one in objects), np.int64, self.size)
        self._parts: list[tuple[Chunk, Any, Any]] = []
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for places in np.split(order, starts[1:]) if self.size else []:
            chunk = objects[int(places[0])]._chunk
            self._parts.append((chunk, _compact(places), _compact(rows[places])))

    def gather(self, name: str, out: np.ndarray) -> np.ndarray:
        """Copy one column of all objects into `out` (size, ...), in the order of the list."""
        for chunk, places, rows in self._parts:
            out[places] = getattr(chunk, name)[rows]
        return out

    def scatter(self, name: str, values: np.ndarray) -> None:
        """The opposite of `gather`."""
        for chunk, places, rows in self._parts:
            getattr(chunk, name)[rows] = values[places]

    def column(self, name: str, like: Any, dtype: type = float) -> np.ndarray:
        """One column of all objects as a new array; `like` is the shape of one row."""
        return self.gather(name, np.empty((self.size, *like), dtype))


def _compact(numbers: np.ndarray) -> Any:
    """A slice where the numbers are consecutive, else the numbers."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers) and bool((np.diff(numbers) == 1).all()):
        return slice(first, last + 1)
    return numbers
