"""Vertices on a grid: a vertex per pixel, voxel or element of an array.

Ids follow each other in row-major order from `first_id`, and so do the rows of the vertex set; nothing is
stored per vertex beyond the set's own columns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import GraphError, ShapeError

if TYPE_CHECKING:
    from graphopt.graph.sets import VertexSet
    from graphopt.types.base import VertexType


class Grid:
    """Vertices of one type with a shape, part of a graph. Made by `Graph.add_grid` and `Graph.add_array`."""

    def __init__(self, graph: Any, vertex_type: VertexType, shape: tuple[int, ...], first_id: int):
        self._graph = graph
        self.type = vertex_type
        self.shape = shape
        """Length of each axis; of an image (height, width)."""
        self.first_id = first_id
        """Id of the first vertex; that at place k (row-major) has `first_id + k`."""

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"<Grid {self.type.tag} {' x '.join(map(str, self.shape))}>"

    @property
    def graph(self) -> Any:
        """The `Graph` that has these vertices."""
        return self._graph

    @property
    def ids(self) -> np.ndarray:
        """Vertex ids in the grid's shape, int64."""
        return np.arange(self.first_id, self.first_id + len(self), dtype=np.int64).reshape(self.shape)

    @property
    def estimate(self) -> np.ndarray:
        """(*shape, storage_dim) float64, live: writing into it moves the vertices."""
        vertex_set, rows = self._rows()
        return vertex_set.estimate[rows].reshape(*self.shape, self.type.storage_dim)

    @estimate.setter
    def estimate(self, values: Any) -> None:
        self.estimate[...] = _per_place(values, self.shape, (self.type.storage_dim,), "estimate")

    @property
    def fixed(self) -> np.ndarray:
        """Bool in the grid's shape, live: held constant."""
        vertex_set, rows = self._rows()
        return vertex_set.fixed[rows].reshape(self.shape)

    @fixed.setter
    def fixed(self, values: Any) -> None:
        self.fixed[...] = values

    @property
    def first_row(self) -> int:
        """Row of the first vertex in its vertex set; the others follow."""
        return self._rows()[1].start

    def coordinates(self) -> np.ndarray:
        """(*shape, axes) float64: column x, row y (then further axes, last axis first) of every place."""
        axes = np.meshgrid(*(np.arange(n, dtype=np.float64) for n in self.shape), indexing="ij")
        return np.stack(axes[::-1], axis=-1)

    def _rows(self) -> tuple[VertexSet, slice]:
        vertex_set = self._graph.vertex_set(self.type)
        _, first = self._graph.vertex_place(self.first_id)
        last = first + len(self) - 1
        if last >= len(vertex_set) or vertex_set.ids[last] != self.first_id + len(self) - 1:
            raise GraphError(f"{self!r} is not complete any more: some of its vertices were removed.")
        return vertex_set, slice(first, last + 1)


def checked_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A grid's shape as a tuple of positive whole numbers."""
    lengths = tuple(int(n) for n in np.atleast_1d(shape))
    if not lengths or min(lengths) < 1 or any(n != m for n, m in zip(lengths, np.atleast_1d(shape))):  # noqa: B905
        raise ShapeError(f"{what} has the shape {shape!r}, expected positive whole numbers, (height, width).")
    return lengths


def as_places(values: Any, shape: tuple[int, ...], item: tuple[int, ...], what: str) -> np.ndarray:
    """`values` as (number of places, *item) float64, or `item` for one value that all places share."""
    array = _per_place(values, shape, item, what)
    return array if array.shape == item else array.reshape(-1, *item)


def _per_place(values: Any, shape: tuple[int, ...], item: tuple[int, ...], what: str) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what} cannot be read as float64: {error}.") from None
    if math.prod(item) == 1 and array.shape in ((), shape):
        array = array.reshape(*array.shape, *item)
    if array.shape not in ((*shape, *item), item):
        raise ShapeError(
            f"{what} has shape {array.shape}, expected {(*shape, *item)}, or {item} for one value for all."
        )
    return array
