"""`VectorXVertex`: vertices without a fixed size, to be defined in Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from graphopt import types
from graphopt.errors import GraphError, ShapeError
from graphopt.g2o.elements.base import INVALID_ID
from graphopt.g2o.elements.vertices import OptimizableGraph_Vertex
from graphopt.g2o.engine.storage import Pool, vertex_pool
from graphopt.types import VertexType
from graphopt.types.files import plain


@cache
def vector_type(storage_dim: int, tangent_dim: int, python: bool) -> VertexType:
    """Vertex type of `VectorXVertex`: x + delta, or left in place where Python moves it."""

    def add(storage: Any, delta: Any) -> Any:
        return storage + delta

    def stay(storage: Any, delta: Any) -> Any:
        return storage

    return types.VertexType(
        name=f"VectorXVertex{storage_dim}",
        tag=f"VERTEX_VECTORX_{storage_dim}_{tangent_dim}{'_PYTHON' if python else ''}",
        storage_dim=storage_dim,
        tangent_dim=tangent_dim,
        oplus=stay if python else add,
        wrap=lambda storage: storage,
        identity=(0.0,) * storage_dim,
        file=plain(storage_dim),
    )


@cache
def _vector_pool(storage_dim: int) -> Pool:
    return vertex_pool(vector_type(storage_dim, max(storage_dim, 1), True), 64)


class VectorXVertex(OptimizableGraph_Vertex):
    """A vertex of any size, to be defined in Python.

    Call `set_dimension(n)` and `set_estimate(x)` in the constructor; override `oplus_impl(update)` unless
    the update is simply added. The estimate may have another length than the update.
    """

    __slots__ = ("_dimension",)
    _pool = _vector_pool(0)

    def __init__(self, id: int = INVALID_ID) -> None:
        super().__init__(id)
        self._dimension = -1

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "oplus_impl" in cls.__dict__:
            cls._is_python = True

    @property
    def _type(self) -> VertexType:  # type: ignore[override]
        storage_dim = self._chunk.estimate.shape[1]
        if self._dimension < 0:
            raise GraphError(f"{self!r} has no dimension; call set_dimension(n) in its constructor.")
        if storage_dim != self._dimension and not self._is_python:
            raise ShapeError(
                f"{self!r}: the estimate has {storage_dim} numbers and the dimension is {self._dimension}; "
                "override oplus_impl(update) to say how an update moves it."
            )
        return vector_type(storage_dim, self._dimension, self._is_python)

    def dimension(self) -> int:
        """Length of an update, -1 until it is set."""
        return self._dimension

    def set_dimension(self, dimension: int) -> bool:
        """Set the length of an update; an estimate of another length becomes zeros."""
        self._dimension = int(dimension)
        if self._chunk.estimate.shape[1] != dimension:
            self._resize(int(dimension))
        return True

    def _resize(self, storage_dim: int) -> None:
        old, row = self._chunk, self._row
        self._chunk, self._row = _vector_pool(storage_dim).take()
        self._chunk.fixed[self._row] = old.fixed[row]
        self._chunk.marginalized[self._row] = old.marginalized[row]
        if self._graph is not None:
            self._graph._topology_changed()

    def estimate_dimension(self) -> int:
        """Length of the estimate."""
        return self._chunk.estimate.shape[1]

    def set_estimate(self, et: Any) -> None:
        """Replace the estimate, a vector of any length."""
        numbers = np.asarray(et, np.float64).ravel()
        if len(numbers) != self._chunk.estimate.shape[1]:
            self._resize(len(numbers))
        self._chunk.estimate[self._row] = numbers

    def set_to_origin(self) -> None:
        """Set the estimate to zeros."""
        self._chunk.estimate[self._row] = 0.0

    def oplus_impl(self, update: np.ndarray) -> None:
        """Add the update; override it for anything else."""
        self.set_estimate(self.estimate() + update)
