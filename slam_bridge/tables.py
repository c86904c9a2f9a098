"""Growing arrays with stable ids: what a `Map` keeps its keyframes, landmarks and observations in.

A table has n rows; row k has the id `ids[k]`, given once and never again. Ids ascend with the rows, removing
rows keeps the order of the others. From an id to its row leads a direct table from the first living id on, so
that a map that slides forward for ever does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError
from graphopt.graph.columns import Columns

Layout = Mapping[str, tuple[tuple[int, ...], Any]]
"""Per column the shape of one entry and the type."""


class MapError(GraphOptError, ValueError):
    """A map does not hold what was asked of it, or what is to be added does not fit."""


class Table:
    """Rows of one kind."""

    def __init__(self, kind: str, layout: Layout):
        self.kind = kind
        """What a row is, for messages: "keyframe"."""
        self._layout = dict(layout)
        self._columns = Columns({"id": ((), np.int64), **self._layout})
        self.next_id = 0
        """The id of the next row."""
        self._rows: np.ndarray | None = None

    def __len__(self) -> int:
        return self._columns.num_rows

    def __getitem__(self, column: str) -> np.ndarray:
        """(n, ...) live view of one column; stale once rows are added or removed."""
        return self._columns[column]

    def __contains__(self, one_id: object) -> bool:
        return isinstance(one_id, (int, np.integer)) and bool(self.find([one_id])[0] >= 0)

    @property
    def ids(self) -> np.ndarray:
        """(n,) int64, ascending."""
        return self._columns["id"]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns but the id."""
        return tuple(self._layout)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, reserved rows included."""
        return self._columns.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def append(self, count: int, values: Mapping[str, Any]) -> np.ndarray:
        """Add rows; each value broadcasts to (count, ...). Returns their ids (count,)."""
        ids = np.arange(self.next_id, self.next_id + count)
        self._columns.append(count, {"id": ids, **values})
        self.next_id += count
        self._rows = None
        return ids

    def find(self, ids: Any) -> np.ndarray:
        """Rows of ids, in their shape; -1 for ids that are not there."""
        wanted = np.asarray(ids, np.int64)
        if not len(self):
            return np.full(wanted.shape, -1)
        low, high = int(self.ids[0]), int(self.ids[-1])
        if self._rows is None:
            self._rows = np.full(high - low + 1, -1)
            self._rows[self.ids - low] = np.arange(len(self))
        inside = (wanted >= low) & (wanted <= high)
        if inside.all():
            return self._rows[wanted - low]
        return np.where(inside, self._rows[np.where(inside, wanted - low, 0)], -1)

    def rows(self, ids: Any) -> np.ndarray:
        """Rows of ids, in their shape; `MapError` names the first that is not there."""
        rows = self.find(ids)
        if (rows < 0).any():
            missing = np.ravel(ids)[int(np.argmax(np.ravel(rows) < 0))]
            raise MapError(f"there is no {self.kind} {int(missing)} in this map of {len(self)} {self.kind}s.")
        return rows

    def keep(self, mask: np.ndarray) -> None:
        """Drop the rows where the mask (n,) is False."""
        if not mask.all():
            self._columns.keep(mask)
            self._rows = None

    def remove(self, ids: Any) -> None:
        """Drop the rows with these ids."""
        mask = np.ones(len(self), bool)
        mask[np.atleast_1d(self.rows(ids)).astype(int)] = False
        self.keep(mask)

    def copy(self) -> Table:
        """Independent table with the same rows and ids."""
        other = Table.__new__(Table)
        other.kind, other._layout, other.next_id = self.kind, self._layout, self.next_id
        other._columns, other._rows = self._columns.copy(), self._rows
        return other

    def arrays(self) -> dict[str, np.ndarray]:
        """All columns and the next id, for a file."""
        names: Iterable[str] = ("id", *self._layout)
        return {**{name: self._columns[name] for name in names}, "next_id": np.array(self.next_id)}

    def fill(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the rows of `arrays()` in place of the present ones; `MapError` if they do not fit."""
        count = len(arrays["id"])
        for name, (shape, dtype) in {"id": ((), np.int64), **self._layout}.items():
            given = arrays[name]
            if given.shape != (count, *shape) or given.dtype != np.dtype(dtype):
                raise MapError(
                    f"{self.kind}s: column {name!r} has shape {given.shape} and type {given.dtype}, "
                    f"expected {(count, *shape)} and {np.dtype(dtype)}."
                )
        if count and ((np.diff(arrays["id"]) <= 0).any() or int(arrays["next_id"]) <= int(arrays["id"][-1])):
            raise MapError(f"{self.kind}s: ids do not ascend up to next_id {int(arrays['next_id'])}.")
        self._columns = Columns.holding({name: np.array(arrays[name]) for name in ("id", *self._layout)})
        self.next_id = int(arrays["next_id"])
        self._rows = None
