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
        """By id from `_low` on, of the first `_num_known` rows; never changed by two tables."""
        self._low = self._num_known = 0
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
        known = self._known_rows(low, high)
        wanted = wanted - self._low
        if not wanted.size or (int(wanted.min()) >= 0 and int(wanted.max()) <= high - self._low):
            return known[wanted]
        inside = (wanted >= 0) & (wanted <= high - self._low)
        return np.where(inside, known[np.where(inside, wanted, 0)], -1)

    def _known_rows(self, low: int, high: int) -> np.ndarray:
        """Rows by id from `_low` on, -1: none; brought up to the last id."""
        room, known = high - self._low + 1, self._num_known
        if self._rows is None or low - self._low > room // 2:
            self._rows, self._low = np.full(high - low + 1, -1), low
            self._num_known = known = 0
        elif room > len(self._rows):
            self._rows = np.concatenate(
                [self._rows, np.full(max(room - len(self._rows), len(self._rows)), -1)]
            )
        self._rows[self.ids[known:] - self._low] = np.arange(known, len(self))
        self._num_known = len(self)
        return self._rows

    def rows(self, ids: Any) -> np.ndarray:
        """Rows of ids, in their shape; `MapError` names the first that is not there."""
        rows = self.find(ids)
        if rows.size and int(rows.min()) < 0:
            missing = np.ravel(ids)[int(np.argmax(np.ravel(rows) < 0))]
            raise MapError(f"there is no {self.kind} {int(missing)} in this map of {len(self)} {self.kind}s.")
        return rows

    def rows_where(self, column: str, values: Any) -> np.ndarray:
        """Rows, ascending, in which an indexed column has one of these values."""
        index, present = self._indices[column], self._columns[column]
        tail = 0 if index is None else int(np.searchsorted(self.ids, index.end))
        if index is None or len(index.ids) - tail > len(present) // 4:
            index, tail = _Index.of(self.ids, present), len(present)
        elif len(present) - tail > max(_TAIL, len(present) // 8):
            index, tail = index.with_more(self.ids[tail:], present[tail:]), len(present)
        self._indices[column] = index
        wanted = np.unique(whole_numbers(values, "values"))
        added = np.flatnonzero(np.isin(present[tail:], wanted)) + tail if tail < len(present) else _NONE
        found = self.find(index.find(wanted))
        found = found[found >= 0]
        if (found[1:] < found[:-1]).any():  # rows that were added value by value need no sorting
            found.sort()
        return np.concatenate([found, added])

    def change(self, column: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Set some rows of an indexed column."""
        index = self._indices[column]
        ids, before = self.ids[rows], self._columns[column][rows]
        self._indices[column] = None  # where memory is missing in between, it is made anew
        self._columns[column][rows] = values
        self._indices[column] = None if index is None else index.changed(ids, before, values)

    def keep(self, mask: np.ndarray) -> None:
        """Drop the rows where the mask (n,) is False."""
        first = int(np.argmin(mask)) if len(mask) else 0
        if len(mask) and not mask[first]:
            if self._rows is not None and first < self._num_known:
                self._rows[self.ids[first : self._num_known] - self._low] = -1
            self._num_known = min(first, self._num_known)
            self._columns.keep(mask)

    def remove(self, ids: Any) -> None:
        """Drop the rows with these ids."""
        self.drop(np.atleast_1d(self.rows(ids)))

    def drop(self, rows: np.ndarray) -> None:
        """Drop these rows."""
        if len(rows):
            mask = np.ones(len(self), bool)
            mask[rows] = False
            self.keep(mask)

    def copy(self) -> Table:
        """Independent table with the same rows and ids."""
        other = Table.__new__(Table)
        other.kind, other._layout, other.next_id = self.kind, self._layout, self.next_id
        other._columns = self._columns.copy()
        other._rows, other._low, other._num_known = None, 0, 0
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
    """The rows of a column by value, up to some id. Of rows that went it keeps the ids."""

    ids: np.ndarray
    """(n,) of the rows, sorted by value."""
    values: np.ndarray
    """(n,) their values, ascending."""
    end: int
    """Ids from here on are not in it."""

    @classmethod
    def of(cls, ids: np.ndarray, column: np.ndarray) -> _Index:
        end = int(ids[-1]) + 1 if len(ids) else 0
        if (column[1:] >= column[:-1]).all():
            return cls(ids.copy(), column.copy(), end)
        order = np.argsort(column, kind="stable")
        return cls(ids[order], column[order], end)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.values.nbytes

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """Ids of rows with these values."""
        first, last = (np.searchsorted(self.values, wanted, side) for side in ("left", "right"))
        count = last - first
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
        return self.ids[starts + np.arange(len(starts))]

    def with_more(self, ids: np.ndarray, values: np.ndarray) -> _Index:
        """With more rows, whose ids are larger."""
        more = _Index.of(ids, values)
        places = np.searchsorted(self.values, more.values, side="right")
        ids, held = np.insert(self.ids, places, more.ids), np.insert(self.values, places, more.values)
        return _Index(ids, held, max(self.end, more.end))

    def changed(self, ids: np.ndarray, before: np.ndarray, values: np.ndarray) -> _Index:
        """Of a column of which the rows (k,) with these ids had some values and have others now."""
        inside = ids < self.end
        ids, before, values = ids[inside], before[inside], values[inside]
        first, last = (np.searchsorted(self.values, np.unique(before), side) for side in ("left", "right"))
        spots = np.concatenate([_NONE, *(np.arange(*ends) for ends in zip(first, last, strict=True))])
        gone = spots[np.isin(self.ids[spots], ids)]
        left = _Index(np.delete(self.ids, gone), np.delete(self.values, gone), self.end)
        order = np.argsort(ids)
        return left.with_more(ids[order], values[order])
