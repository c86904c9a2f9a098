"""Growing arrays with stable ids: what a `Map` keeps its keyframes, landmarks and observations in.

A table has n rows; row k has the id `ids[k]`, given once and never again. Ids ascend with the rows, removing
rows keeps the order of the others. From an id to its row leads a direct table from the first living id on, so
that a map that slides forward for ever does not grow.

Columns may be indexed: `rows_where` finds the rows with some values without a look at the others. Such
columns change by the table's methods only; their views are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError
from graphopt.graph.columns import Columns

Layout = Mapping[str, tuple[tuple[int, ...], Any]]
"""Per column the shape of one entry and the type."""


class MapError(GraphOptError, ValueError):
    """A map does not hold what was asked of it, or what is to be added does not fit."""


FARTHEST_PIXEL = 1e6
"""[px]: no image has pixels beyond. One observation there outweighs all others, with a robust kernel too."""


def whole_numbers(values: Any, what: str = "ids") -> np.ndarray:
    """`values` as int64, floats only if they are whole. Raises `MapError`."""
    array = np.asarray(values)
    if array.dtype.kind in "iu" or array.size == 0:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "f" and bool((array == np.floor(array)).all()) and np.isfinite(array).all():
        return array.astype(np.int64)
    raise MapError(f"{what} hold {np.ravel(array)[:3].tolist()}, expected whole numbers.")


class Table:
    """Rows of one kind."""

    def __init__(self, kind: str, layout: Layout, indexed: tuple[str, ...] = ()):
        self.kind = kind
        """What a row is, for messages: "keyframe"."""
        self._layout = dict(layout)
        self._columns = Columns({"id": ((), np.int64), **self._layout})
        self.next_id = 0
        """The id of the next row."""
        self._rows: np.ndarray | None = None
        self._indices: dict[str, _Index | None] = dict.fromkeys(indexed)

    def __len__(self) -> int:
        return self._columns.num_rows

    def __getitem__(self, column: str) -> np.ndarray:
        """(n, ...) live view of one column, read-only if indexed; stale once rows are added or removed."""
        values = self._columns[column]
        if column in self._indices:
            values = values.view()
            values.flags.writeable = False
        return values

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
        indices = sum(index.nbytes for index in self._indices.values() if index is not None)
        return self._columns.nbytes + indices + (0 if self._rows is None else self._rows.nbytes)

    def append(self, count: int, values: Mapping[str, Any]) -> np.ndarray:
        """Add rows; each value broadcasts to (count, ...). Returns their ids (count,)."""
        ids = np.arange(self.next_id, self.next_id + count)
        self._columns.append(count, {"id": ids, **values})
        self.next_id += count
        self._rows = None
        return ids

    def find(self, ids: Any) -> np.ndarray:
        """Rows of ids, in their shape; -1 for ids that are not there."""
        wanted = whole_numbers(ids, f"ids of {self.kind}s")
        if not len(self):
            return np.full(wanted.shape, -1)
        low, high = int(self.ids[0]), int(self.ids[-1])
        if high - low > _SPARSE * len(self):
            rows = np.minimum(np.searchsorted(self.ids, wanted), len(self) - 1)
            return np.where(self.ids[rows] == wanted, rows, -1)
        if self._rows is None:
            rows = np.full(high - low + 1, -1)
            rows[self.ids - low] = np.arange(len(self))
            self._rows = rows
        if not wanted.size or (int(wanted.min()) >= low and int(wanted.max()) <= high):
            return self._rows[wanted - low]
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, self._rows[np.where(inside, wanted - low, 0)], -1)

    def rows(self, ids: Any) -> np.ndarray:
        """Rows of ids, in their shape; `MapError` names the first that is not there."""
        rows = self.find(ids)
        if rows.size and int(rows.min()) < 0:
            missing = np.ravel(ids)[int(np.argmax(np.ravel(rows) < 0))]
            raise MapError(f"there is no {self.kind} {int(missing)} in this map of {len(self)} {self.kind}s.")
        return rows

    def rows_where(self, column: str, values: Any) -> np.ndarray:
        """Rows, ascending, in which an indexed column has one of these values."""
        index = self._indices[column]
        present = self._columns[column]
        if index is None or len(present) - len(index.order) > max(_TAIL, len(present) // 8):
            index = self._indices[column] = _Index.of(present)
        wanted = np.unique(whole_numbers(values, "values"))
        tail = len(index.order)
        added = np.flatnonzero(np.isin(present[tail:], wanted)) + tail if tail < len(present) else _NONE
        found = index.find(wanted)
        if (found[1:] < found[:-1]).any():  # rows that were added value by value need no sorting
            found.sort()
        return np.concatenate([found, added])

    def change(self, column: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Set some rows of an indexed column."""
        index = self._indices[column]
        self._indices[column] = None  # where memory is missing in between, it is made anew
        self._columns[column][rows] = values
        self._indices[column] = None if index is None else index.changed(rows, values)

    def keep(self, mask: np.ndarray) -> None:
        """Drop the rows where the mask (n,) is False."""
        if not mask.all():
            indices = {
                name: None if index is None else index.kept(mask) for name, index in self._indices.items()
            }
            self._columns.keep(mask)
            self._indices, self._rows = indices, None

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
        other._indices = dict(self._indices)  # an index never changes
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
        self._indices = dict.fromkeys(self._indices)


_SPARSE = 256
"""Ids are searched, not looked up, where they spread over so many times their number."""
_TAIL = 4096
"""Rows that are searched one by one before an index takes them in."""
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class _Index:
    """The first n rows of a column by value."""

    order: np.ndarray
    """(n,) rows, sorted by value."""
    values: np.ndarray
    """(n,) their values, ascending."""

    @classmethod
    def of(cls, column: np.ndarray) -> _Index:
        if (column[1:] >= column[:-1]).all():
            return cls(np.arange(len(column)), column.copy())
        order = np.argsort(column, kind="stable")
        return cls(order, column[order])

    @property
    def nbytes(self) -> int:
        return self.order.nbytes + self.values.nbytes

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """Rows with these values."""
        first, last = (np.searchsorted(self.values, wanted, side) for side in ("left", "right"))
        count = last - first
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
        return self.order[starts + np.arange(len(starts))]

    def changed(self, rows: np.ndarray, values: np.ndarray) -> _Index:
        """Of a column of which some rows have other values."""
        inside = rows < len(self.order)
        rows, values = rows[inside], values[inside]
        is_old = np.ones(len(self.order), bool)
        is_old[rows] = False
        left, order = is_old[self.order], np.argsort(values, kind="stable")
        held, values = self.values[left], values[order]
        places = np.searchsorted(held, values)
        return _Index(np.insert(self.order[left], places, rows[order]), np.insert(held, places, values))

    def kept(self, mask: np.ndarray) -> _Index:
        """Of a column from which the rows where the mask is False have gone."""
        left = mask[self.order]
        number = np.cumsum(mask) - 1
        return _Index(number[self.order[left]], self.values[left])
