"""Estimates in the form in which they are optimized, see `types.base.WorkingForm`."""

from __future__ import annotations

import numpy as np

from graphopt.graph.sets import VertexSet
from graphopt.types.base import VertexType, working_vertex_type


class WorkingEstimates:
    """The working form of a vertex set's estimates; without one, the set's own array."""

    def __init__(self, vertex_set: VertexSet, *, keeps_array: bool = True):
        """Take the set's estimates.

        keeps_array: hold the set's array, for who writes by its address. Else the set knows when nobody has
        it (see `Columns`), and what is known of it stays so.
        """
        self._set = vertex_set
        self._form = vertex_set.type.working
        self.type: VertexType = working_vertex_type(vertex_set.type)
        """Type of the numbers in `array`."""
        self._array: np.ndarray | None = vertex_set.estimate if keeps_array else None
        self._known: np.ndarray | None = None
        if self._form is not None:
            self._array = np.ascontiguousarray(self._form.encode(vertex_set.estimate))
            self._known = self._array.copy()

    @property
    def array(self) -> np.ndarray:
        """(n, type.storage_dim)."""
        return self._set.estimate if self._array is None else self._array

    @property
    def nbytes(self) -> int:
        """Memory beside the graph's."""
        return 0 if self._known is None else self.array.nbytes + self._known.nbytes

    def read(self, rows: np.ndarray | slice = slice(None)) -> None:
        """Take the graph's estimates, of all vertices or of some rows."""
        if self._form is not None and self._known is not None:
            self.array[rows] = self._form.encode(self._set.estimate[rows])
            self._known[rows] = self.array[rows]

    def write(self, rows: np.ndarray | None = None) -> None:
        """Bring what has changed (of some rows) into the graph; the others keep their digits."""
        if self._form is None or self._known is None:
            return
        if rows is None:
            changed = np.flatnonzero((self.array != self._known).any(axis=1))
        else:
            changed = rows[(self.array[rows] != self._known[rows]).any(axis=1)]
        if len(changed):
            self._set.estimate[changed] = self._form.decode(self.array[changed])
            self._known[changed] = self.array[changed]
