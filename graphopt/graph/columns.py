"""Growable columns: arrays of one length that share their growth.

A set of n vertices or edges keeps each property in one array. `Columns` holds arrays with room to grow
(capacity doubles, so n single additions cost O(n)); `columns["name"]` is a live numpy view of the used rows.

A view stays the set's memory until the set grows beyond its capacity or loses rows; `generation` counts these
events. Afterwards an old view still holds its old numbers, but is no longer connected to the set.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_MIN_CAPACITY = 16


class Columns:
    """Named arrays with a common number of rows."""

    def __init__(self, layout: Mapping[str, tuple[tuple[int, ...], type]]):
        self._buffers = {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in layout.items()}
        self._views: dict[str, np.ndarray] = dict(self._buffers)
        self.num_rows = 0
        self.generation = 0
        """Number of times that views became stale: after a growth beyond the capacity, after a removal."""

    @classmethod
    def holding(cls, arrays: Mapping[str, np.ndarray]) -> Columns:
        """These arrays, of one length, as columns: nothing is copied."""
        made = cls.__new__(cls)
        made._buffers = dict(arrays)
        made._views = dict(arrays)
        made.num_rows = len(next(iter(arrays.values())))
        made.generation = 0
        return made

    def __getitem__(self, name: str) -> np.ndarray:
        """Live view of one column's used rows."""
        return self._views[name]

    def __len__(self) -> int:
        return self.num_rows

    @property
    def nbytes(self) -> int:
        """Memory of all columns, reserved rows included."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def reserve(self, num_rows: int) -> None:
        """Make room for `num_rows` rows in total."""
        capacity = len(next(iter(self._buffers.values())))
        if num_rows <= capacity:
            return
        grown = max(num_rows, 2 * self.num_rows, _MIN_CAPACITY)
        for name, buffer in self._buffers.items():
            larger = np.empty((grown, *buffer.shape[1:]), buffer.dtype)
            larger[: self.num_rows] = buffer[: self.num_rows]
            self._buffers[name] = larger
        self.generation += 1
        self._refresh()

    def append(self, num_rows: int, values: Mapping[str, object]) -> None:
        """Add rows; each value broadcasts to its column's new rows."""
        first, last = self.num_rows, self.num_rows + num_rows
        self.reserve(last)
        for name, buffer in self._buffers.items():
            buffer[first:last] = values[name]
        self.num_rows = last
        self._refresh()

    def keep(self, mask: np.ndarray) -> None:
        """Drop the rows where `mask` is False; the others keep their order."""
        self._buffers = {name: view[mask] for name, view in self._views.items()}
        self.num_rows = int(np.count_nonzero(mask))
        self.generation += 1
        self._refresh()

    def copy(self) -> Columns:
        """Independent columns with the same rows."""
        other = Columns.__new__(Columns)
        other._buffers = {name: view.copy() for name, view in self._views.items()}
        other.num_rows = self.num_rows
        other.generation = 0
        other._refresh()
        return other

    def _refresh(self) -> None:
        self._views = {name: buffer[: self.num_rows] for name, buffer in self._buffers.items()}
