"""Vertices: the base class of all.

A vertex keeps its estimate and flags in a row of its type's arrays (see `storage`) from its first moment.
`estimate()` returns a copy, as in g2opy. An `oplus_impl` that a program overrides is called for a
`VectorXVertex` only, as in g2opy.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o.elements.base import (
    UNASSIGNED_ID,
    Data,
    DataContainer,
    HyperGraphElementType,
    native,
)
from graphopt.g2o.engine.storage import Chunk, Pool, fast_getter, fast_setter
from graphopt.g2o.values import scalar
from graphopt.types import VertexType

LARGEST_ID = 2**63 - 1
"""Largest id of a vertex; g2o's own ids have 32 bits."""


class Vertex(DataContainer, kernels.VertexRow):
    """A vertex of a hyper graph: an id and user data."""

    __slots__ = ()

    def __init__(self, id: int = UNASSIGNED_ID) -> None:
        self._id = id
        self._graph: Any = None  # the graph that has it
        self._data: list[Data] | None = None

    def id(self) -> int:
        """Id; -1 (-2 for optimizable vertices) until one is set."""
        return self._id

    def set_id(self, id: int) -> None:
        """Set the id. In a graph it renames the vertex, like `change_id`."""
        new = id if type(id) is int and -LARGEST_ID <= id <= LARGEST_ID else as_id(id)
        if (
            self._graph is not None
            and new != self._id
            and not native(self._graph).change_id(self._graph, self, new)
        ):
            raise GraphError(f"set_id({new}): the graph has a vertex {new} already.")
        self._id = new

    def element_type(self) -> HyperGraphElementType:
        """HGET_VERTEX."""
        return HyperGraphElementType.HGET_VERTEX

    def edges(self) -> set[Any]:
        """Edges of the graph that have this vertex, objects of `OptimizableGraph_Edge`."""
        return set() if self._graph is None else self._graph._edges_of(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}>"


class OptimizableGraph_Vertex(Vertex):
    """A vertex with an estimate that the optimizer moves by `oplus`."""

    __slots__ = ()
    _pool: ClassVar[Pool]
    _type: VertexType
    _is_python: ClassVar[bool] = False
    _stack: list[np.ndarray] | None
    _chunk: Chunk
    __init__ = kernels.VertexRow.__init__

    # ---------------------------------------------------------------- estimate

    def _from_storage(self, storage: np.ndarray) -> Any:
        return storage.copy()

    def _to_storage(self, value: Any) -> Any:
        return scalar.floats(value, self._type.storage_dim, f"{type(self).__name__} estimate")

    def estimate(self) -> Any:
        """Present estimate (a copy)."""
        return self._from_storage(self._chunk.estimate[self._row])

    def set_estimate(self, et: Any) -> None:
        """Replace the estimate."""
        self._chunk.estimate[self._row] = self._to_storage(et)

    def graph(self) -> Any:
        """The graph that it is in, None if there is none."""
        return self._graph

    def set_to_origin(self) -> None:
        """Set the estimate to the identity."""
        self._chunk.estimate[self._row] = self._type.identity

    def set_to_origin_impl(self) -> None:
        """`set_to_origin`, as older bindings call it."""
        self.set_to_origin()

    def get_estimate_data(self) -> np.ndarray:
        """(estimate_dimension,) numbers of the estimate."""
        return self._chunk.estimate[self._row].copy()

    def set_estimate_data(self, estimate: Any) -> bool:
        """Replace the numbers of the estimate; False if there are not `estimate_dimension` of them."""
        numbers = np.asarray(estimate, np.float64).ravel()
        if len(numbers) != self.estimate_dimension():
            return False
        self._chunk.estimate[self._row, : len(numbers)] = numbers
        return True

    def get_minimal_estimate_data(self) -> np.ndarray:
        """(minimal_estimate_dimension,) numbers."""
        return self.get_estimate_data()

    def set_minimal_estimate_data(self, estimate: Any) -> bool:
        """Replace the estimate by its minimal numbers; False if the count is wrong."""
        return self.set_estimate_data(estimate)

    def set_estimate_data_impl(self, estimate: Any) -> bool:
        """`set_estimate_data`, as older bindings call it."""
        return self.set_estimate_data(estimate)

    def set_minimal_estimate_data_impl(self, estimate: Any) -> bool:
        """`set_minimal_estimate_data`, as older bindings call it."""
        return self.set_minimal_estimate_data(estimate)

    def update_cache(self) -> None:
        """Kept for programs: nothing is cached."""

    def estimate_dimension(self) -> int:
        """Length of `get_estimate_data`."""
        return self._type.storage_dim

    def estimate_dimension_at_compile_time(self) -> int:
        """The same for classes with a fixed size."""
        return self.estimate_dimension()

    def minimal_estimate_dimension(self) -> int:
        """Length of `get_minimal_estimate_data`."""
        return self.estimate_dimension()

    def dimension(self) -> int:
        """Length of an update; the size of the vertex's Hessian block."""
        return self._type.tangent_dim

    def set_dimension(self, dimension: int) -> bool:
        """Only vertices without a fixed size have one to set: False unless it is the same."""
        return dimension == self.dimension()

    def oplus(self, update: Any) -> None:
        """Move the estimate by an update (dimension,)."""
        delta = np.array(scalar.floats(update, self.dimension(), "update"))
        self.oplus_impl(delta)

    def oplus_impl(self, update: np.ndarray) -> None:
        """Move the estimate; override it to define a vertex in Python."""
        row = self._chunk.estimate[self._row]
        row[:] = self._type.oplus(row.copy(), update)

    def push(self) -> None:
        """Remember the estimate."""
        if self._stack is None:
            self._stack = []
        self._stack.append(self._chunk.estimate[self._row].copy())

    def pop(self) -> None:
        """Return to the last pushed estimate and forget it."""
        self._chunk.estimate[self._row] = self._take_top()

    def discard_top(self) -> None:
        """Forget the last pushed estimate."""
        self._take_top()

    def _take_top(self) -> np.ndarray:
        if not self._stack:
            raise GraphError(f"{self!r}: pop or discard_top without a push before.")
        return self._stack.pop()

    def stack_size(self) -> int:
        """Pushed estimates."""
        return len(self._stack or ())

    # ---------------------------------------------------------------- flags and Hessian

    @fast_getter("fixed")
    def fixed(self) -> bool:
        """Held constant."""
        return bool(self._chunk.fixed[self._row])

    @fast_setter("fixed")
    def set_fixed(self, fixed: bool) -> None:
        """Hold constant."""
        self._chunk.fixed[self._row] = fixed

    @fast_getter("marginalized")
    def marginalized(self) -> bool:
        """Eliminated by the Schur complement."""
        return bool(self._chunk.marginalized[self._row])

    @fast_setter("marginalized")
    def set_marginalized(self, marginalized: bool) -> None:
        """Eliminate by the Schur complement."""
        self._chunk.marginalized[self._row] = marginalized

    def hessian_index(self) -> int:
        """Number of the vertex among those that are optimized, -1 if it is not."""
        if self._graph is not None:
            self._graph._number_hessian()
        return self._hessian_index

    def set_hessian_index(self, ti: int) -> None:
        """Set the number; the next `initialize_optimization` sets it again."""
        self._hessian_index = ti

    def col_in_hessian(self) -> int:
        """What `set_col_in_hessian` set, -1 before."""
        return self._col

    def set_col_in_hessian(self, c: int) -> None:
        """Kept for programs; nothing here reads it."""
        self._col = c

    def hessian(self, i: int | None = None, j: int | None = None) -> Any:
        """(dimension, dimension) diagonal block of H at the last linearization, or one number of it."""
        block = self._linearized()._hessian_block(self)
        return block if i is None or j is None else float(block[i, j])

    def hessian_determinant(self) -> float:
        """Determinant of `hessian()`, as older bindings have it."""
        return float(np.linalg.det(self.hessian()))

    def b(self, i: int | None = None) -> Any:
        """(dimension,) part of b = -J' Omega e at the last linearization, or one number of it."""
        part = self._linearized()._b_block(self)
        return part if i is None else float(part[i])

    def _linearized(self) -> Any:
        if self._graph is None:
            raise GraphError(f"{self!r} is in no optimizer: it has no Hessian block.")
        return self._graph

    def solve_direct(self, damping: float = 0.0) -> bool:
        """Move this vertex alone by solving its block; False if it is not positive definite."""
        matrix = self.hessian() + damping * np.eye(self.dimension())
        try:
            factor = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return False
        self.oplus(np.linalg.solve(factor.T, np.linalg.solve(factor, self.b())))
        return True

    def clear_quadratic_form(self) -> None:
        """Kept for programs: each linearization starts from zero by itself."""

    def lock_quadratic_form(self) -> None:
        """Kept for programs: linearization locks nothing."""

    unlock_quadratic_form = lock_quadratic_form


def as_id(value: Any) -> int:
    """`value` as an id; ids are signed integers of 64 bits."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if -LARGEST_ID - 1 <= value <= LARGEST_ID:
            return int(value)
        raise GraphError(f"An id must fit a signed integer of 64 bits (at most {LARGEST_ID}), got {value}.")
    raise TypeError(f"An id must be an integer, got {value!r}.")
