"""From ids to places: which set and row holds an id.

Two tables answer, each built when it is first needed and dropped when ids change in bulk:

* for arrays of ids, a direct table where the ids are dense (span <= 8 n), else a sorted array with binary
  search; single look-ups in many dense ids read the direct table;
* a dictionary for other single look-ups, extended in place by single additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from graphopt.cpu_kernels import kernels

_SMALL = 64  # look-ups of at most so many ids go through the dictionary
_DENSE_SPAN = 8  # a direct table may have so many entries per id
_LOOK_UP, _TABLE = 3.0, 1.0 / 16.0  # times of a look-up by the table and of an id in it; in a dictionary: 1
_WORTH = 0.25  # of a dictionary's time, up to which single look-ups read tables


class HasIds(Protocol):
    """A vertex set or parameter set."""

    @property
    def ids(self) -> np.ndarray:
        """(n,) int64."""
        ...


class IdIndex:
    """Index over the ids of several sets. A place is (number of the set, row in it)."""

    def __init__(self, sets: Sequence[HasIds]):
        self._sets = sets
        self._dictionary: dict[int, tuple[int, int]] | None = None
        self._table: _ArrayTable | None = None
        self._spent = 0.0
        """On single look-ups by tables, in the times of `_LOOK_UP`."""

    def clear(self) -> None:
        """Forget everything; the next look-up rebuilds."""
        self._dictionary = None
        self._table = None

    def added(self, set_number: int, first_row: int, ids: np.ndarray) -> None:
        """Note that rows `first_row...` of a set now hold `ids`."""
        self._table = None
        if self._dictionary is None:
            return
        if len(ids) > _SMALL:
            self._dictionary = None
            return
        for row, vertex_id in enumerate(ids.tolist(), first_row):
            self._dictionary[vertex_id] = (set_number, row)

    def get(self, one_id: int) -> tuple[int, int] | None:
        """Place of one id, None if no set has it."""
        if self._dictionary is None:
            table = self._direct() if isinstance(one_id, (int, np.integer)) else None
            if table is not None:
                return table.get(int(one_id))
            self._dictionary = {
                id_: (number, row)
                for number, one_set in enumerate(self._sets)
                for row, id_ in enumerate(one_set.ids.tolist())
            }
        return self._dictionary.get(one_id)

    def _direct(self) -> _ArrayTable | None:
        """The table, while single look-ups and tables after additions take less time than a dictionary."""
        num_ids = sum(len(one_set.ids) for one_set in self._sets)
        self._spent += _LOOK_UP + (_TABLE * num_ids if self._table is None else 0.0)
        if self._spent > _WORTH * num_ids:
            return None
        self._table = self._table or _ArrayTable(self._sets)
        return self._table if self._table.is_dense else None

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of many ids: (set numbers, rows), int64 arrays of the shape of `ids`; -1 where unknown."""
        if ids.size <= _SMALL and (self._dictionary is not None or self._table is None):
            missing = (-1, -1)
            places = [self.get(id_) or missing for id_ in ids.ravel().tolist()]
            pairs = np.array(places, np.int64).reshape(-1, 2)
            return pairs[:, 0].reshape(ids.shape), pairs[:, 1].reshape(ids.shape)
        if self._table is None:
            self._table = _ArrayTable(self._sets)
        return self._table.find(ids)

    def find_sets(self, ids: np.ndarray) -> np.ndarray:
        """Set numbers of many ids, of their shape; -1 where unknown."""
        if ids.ndim == 2 and ids.size > _SMALL:
            self._table = self._table or _ArrayTable(self._sets)
            direct = self._table.direct_sets()
            if direct is not None:
                return kernels.look_up(np.ascontiguousarray(ids, np.int64), *direct)[0]
        return self.find(ids)[0]

    def find_rows(self, ids: np.ndarray) -> tuple[np.ndarray, int]:
        """Rows (m, k) int32 in their sets, -1 for unknown ids, and the smallest of them (0 at most)."""
        if ids.size > _SMALL:
            self._table = self._table or _ArrayTable(self._sets)
            direct = self._table.direct_rows()
            if direct is not None:
                return kernels.look_up(ids, *direct)
        rows = self.find(ids)[1].astype(np.int32)
        return rows, int(min(rows.min(), 0)) if rows.size else 0


class _ArrayTable:
    """Ids of all sets with their places, for vectorised look-up."""

    def __init__(self, sets: Sequence[HasIds]):
        self._ids = [one_set.ids for one_set in sets]
        bounds = [(int(ids.min()), int(ids.max())) for ids in self._ids if len(ids)]
        self._low = min((low for low, _ in bounds), default=0)
        self._span = max((high for _, high in bounds), default=self._low - 1) - self._low + 1
        num_ids = sum(map(len, self._ids))
        self.is_dense = 0 < self._span <= _DENSE_SPAN * num_ids + 1024

    def get(self, one_id: int) -> tuple[int, int] | None:
        """As `IdIndex.get`, of dense ids."""
        at = one_id - self._low
        if not 0 <= at < self._span or (number := int(self._sets_by_id[at])) < 0:
            return None
        return number, int(self._rows_by_id[at])

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `IdIndex.find`."""
        if self.is_dense:
            inside = (ids >= self._low) & (ids < self._low + self._span)
            at = np.where(inside, ids - self._low, 0)
            places = [np.where(inside, table[at], -1) for table in (self._sets_by_id, self._rows_by_id)]
        else:
            known, sets, rows = self._sorted
            if not len(known):
                return np.full(ids.shape, -1), np.full(ids.shape, -1)
            at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            is_known = known[at] == ids
            places = [np.where(is_known, table[at], -1) for table in (sets, rows)]
        return places[0].astype(np.int64), places[1].astype(np.int64)

    def direct_rows(self) -> tuple[int, np.ndarray] | None:
        """Lowest id, and (span,) int32 row of each id from there on, -1 for none; None if ids are sparse."""
        return (self._low, self._rows_by_id) if self.is_dense else None

    def direct_sets(self) -> tuple[int, np.ndarray] | None:
        """As `direct_rows`, the number of the set of each id."""
        return (self._low, self._sets_by_id) if self.is_dense else None

    @cached_property
    def _rows_by_id(self) -> np.ndarray:
        return kernels.table_by_id(self._ids, self._low, self._span, True)

    @cached_property
    def _sets_by_id(self) -> np.ndarray:
        return kernels.table_by_id(self._ids, self._low, self._span, False)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All ids ascending, and the set and the row of each."""
        ids = np.concatenate([np.empty(0, np.int64), *self._ids])
        counts = [len(one) for one in self._ids]
        rows = np.concatenate([np.empty(0, np.int64), *map(np.arange, counts)])
        order = np.argsort(ids, kind="stable")
        return ids[order], np.repeat(np.arange(len(counts)), counts)[order], rows[order]
