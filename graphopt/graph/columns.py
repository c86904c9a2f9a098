"""Growable columns: arrays of one length that share their growth.

A set of n vertices or edges keeps each property in one array. `Columns` holds arrays with room to grow
(capacity doubles, so n single additions cost O(n)); `columns["name"]` is a live numpy view of the used rows.

A view stays the set's memory until the set grows beyond its capacity or loses rows; `generation` counts
these events. Afterwards an old view still holds its old numbers, but is no longer connected to the set: it
becomes read-only, so that nobody writes where nobody reads. (numpy has no way to do the same for slices that
a user took of a view; take them anew.)

**What is known of a column** (`known`: its fingerprint, say) stays known while nobody can have written.
Whoever writes has a view, or one made of it, and numpy counts these: each refers to the column's buffer. So a
column whose buffer nobody else refers to stays as it is until it is handed out again (`columns["name"]`), and
that ends what is known. `look` gives a read-only view, which ends nothing. Who writes by an address kept as a
number (`ctypes.data`, `__array_interface__`, a pointer in C++) has no reference to be counted: `touch`.

**What comes later** (`fill_later`, `Repeated`). A column whose numbers are on a device, or one row for all,
gets them when somebody looks at them here: all ways to a column lead through `_settle`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any, Protocol, TypeVar

import numpy as np

from graphopt.foreign_arrays import shared

Fact = TypeVar("Fact")
_NOTHING_KNOWN: tuple[object, dict[Hashable, Any]] = (object(), {})

_FILLING = threading.RLock()
_MIN_CAPACITY = 16
_PRUNE = 1000  # so many views may be remembered before those that are gone are looked for


def distinct_rows(array: np.ndarray) -> np.ndarray:
    """All rows, or the first one where one stands for all."""
    return array[:1] if array.ndim > 1 and array.strides[0] == 0 else array


class Elsewhere(Protocol):
    """Numbers of a column that are not on the host."""

    @property
    def facts(self) -> Mapping[Hashable, Any]:
        """What is known of them (`Columns.known`), by question."""
        ...

    def fill(self, column: np.ndarray) -> None:
        """Bring them into the column's used rows."""
        ...

    def lend(self) -> Any:
        """An array of them on their device for other libraries; None: there is none."""
        ...


@dataclass(frozen=True)
class Repeated:
    """One row for all rows of a column: memory is written once somebody looks at it."""

    row: np.ndarray
    facts: Mapping[Hashable, Any] = field(default_factory=dict)

    def fill(self, column: np.ndarray) -> None:
        """Write the rows."""
        column[...] = self.row

    def lend(self) -> None:
        """On no device."""


class Columns:
    """Named arrays with a common number of rows."""

    def __init__(self, layout: Mapping[str, tuple[tuple[int, ...], type]]):
        self._buffers = {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in layout.items()}
        self._views: dict[str, np.ndarray] = dict(self._buffers)
        self._fill: dict[str, float] = {}
        """What rows get where nothing is said, unless it is zero."""
        self._nobody_looks()
        self.num_rows = 0
        self.generation = 0
        """Number of times that views became stale: after a growth beyond the capacity, after a removal."""

    @classmethod
    def holding(
        cls, arrays: Mapping[str, np.ndarray], repeated: Mapping[str, Repeated] | None = None
    ) -> Columns:
        """These arrays, of one length, as columns: nothing is copied. And columns of one row repeated."""
        made = cls.__new__(cls)
        made._buffers = dict(arrays)
        made._views = dict(arrays)
        made._fill = {}
        made.num_rows = len(next(iter(arrays.values())))
        made.generation = 0
        for name, source in (repeated or {}).items():
            buffer = made._buffers[name] = np.empty((made.num_rows, *source.row.shape))
            made._views[name] = buffer[:]
        made._nobody_looks()
        for name, source in (repeated or {}).items():
            made._come_later(name, source)
        return made

    def add_column(self, name: str, shape: tuple[int, ...], dtype: type, fill: float = 0) -> None:
        """One more column, `fill` in all rows and, where nothing is said, in rows to come."""
        capacity = len(next(iter(self._buffers.values())))
        self._buffers[name] = np.full((capacity, *shape), fill, dtype)
        if fill:
            self._fill[name] = fill
        self._views[name] = self._buffers[name][: self.num_rows]

    def fill_later(self, name: str, source: Elsewhere) -> bool:
        """Let a column be what `source` has, brought here when somebody looks; False: not this column.

        Whoever has a view could look without being noticed. The fingerprint is another one from now on.
        """
        with _FILLING:
            if not self._is_alone(name):
                return False
            self._come_later(name, source)
        return True

    def _come_later(self, name: str, source: Elsewhere) -> None:
        self._elsewhere[name] = source
        epoch = self._epochs[name] = object()
        self._facts[name] = epoch, {"fingerprint": token_bytes(16), **source.facts}

    def elsewhere(self, name: str) -> Elsewhere | None:
        """What `fill_later` was given, while nobody has looked."""
        return self._elsewhere.get(name)

    def overwrite(self, name: str) -> np.ndarray:
        """Live view of a column, all of whose numbers the caller writes: none are brought here."""
        with _FILLING:
            self._elsewhere.pop(name, None)
        return self[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the used rows."""
        return self._views[name].shape

    def _settle(self, name: str | None = None) -> None:
        """A column's numbers, or those of all, are here."""
        with _FILLING:
            for one in list(self._elsewhere) if name is None else [name]:
                if (source := self._elsewhere.get(one)) is not None:
                    source.fill(self._views[one])
                    del self._elsewhere[one]

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return list(self._buffers)

    def has(self, name: str) -> bool:
        """There is a column of this name."""
        return name in self._buffers

    def __getitem__(self, name: str) -> np.ndarray:
        """Live view of one column's used rows."""
        if self._elsewhere:
            self._settle(name)
        view = self._views[name]  # before facts end: whoever finds out facts meanwhile counts this reference
        self._asked.add(name)
        self._epochs[name] = object()
        return view

    def look(self, name: str) -> np.ndarray:
        """Read-only view of one column's used rows; numpy does not let it be made writable."""
        if self._elsewhere:
            self._settle(name)
        return np.asarray(self._views[name].data.toreadonly())

    def touch(self) -> None:
        """End what is known of all columns: somebody has written by an address."""
        self._settle()
        self._epochs: dict[str, object] = dict.fromkeys(self._buffers, object())

    def known(self, name: str, what: Hashable, find: Callable[[np.ndarray], Fact]) -> Fact:
        """find(column), which only reads, or what it said last time while nobody can have written since.

        what: names the question.
        """
        epoch = self._epochs.get(name)
        of, facts = self._facts.get(name, _NOTHING_KNOWN)
        if of is not epoch:
            # a view taken by another thread meanwhile is counted here, or begins another epoch
            if not self._is_alone(name):
                return find(self.look(name))
            facts = {}
            self._facts[name] = epoch, facts
        if what not in facts:  # of an epoch that is over, if the column is handed out meanwhile
            facts[what] = find(self.look(name))
        return facts[what]

    def _is_alone(self, name: str) -> bool:
        """Nobody else refers to a column's memory."""
        return self._references(name) == _ALONE and self._buffers[name].base is None

    def _references(self, name: str) -> tuple[int, int]:
        """How many objects refer to a column's buffer and to its view."""
        return sys.getrefcount(self._buffers[name]), sys.getrefcount(self._views[name])

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
        self._settle()
        larger = {
            name: np.empty((grown, *buffer.shape[1:]), buffer.dtype) for name, buffer in self._buffers.items()
        }
        for name, buffer in self._buffers.items():
            larger[name][: self.num_rows] = buffer[: self.num_rows]
        self._buffers = larger
        self._become_stale()
        self._refresh()

    def append(self, num_rows: int, values: Mapping[str, object]) -> None:
        """Add rows; each value broadcasts to its column's new rows.

        Of the first rows a value may be `Elsewhere`, and stays there until somebody looks.
        """
        first, last = self.num_rows, self.num_rows + num_rows
        later: dict[str, Any] = {name: one for name, one in values.items() if hasattr(one, "facts")}
        taken = {*later, *({} if first else self._take(num_rows, values))}
        self.reserve(last)
        for name, buffer in self._buffers.items():
            if name not in taken:
                buffer[first:last] = values.get(name, self._fill.get(name, 0))
        self.num_rows = last
        self._refresh()
        for name, source in later.items():
            if first or not self.fill_later(name, source):
                source.fill(self._buffers[name][first:last])

    def _take(self, num_rows: int, values: Mapping[str, object]) -> set[str]:
        """Of the first rows: arrays of `foreign_arrays.empty` become buffers; returns their names."""
        taken = {
            name: memory
            for name, value in values.items()
            if isinstance(value, np.ndarray)
            and name in self._buffers
            and value.shape == (num_rows, *self._buffers[name].shape[1:])
            and value.dtype == self._buffers[name].dtype
            and (memory := shared(value)) is not None
        }
        if taken:
            others = {
                name: np.empty((num_rows, *buffer.shape[1:]), buffer.dtype)
                for name, buffer in self._buffers.items()
            }
            self._buffers = {**others, **taken}
            self._become_stale()
        return set(taken)

    def keep(self, mask: np.ndarray) -> None:
        """Drop the rows where `mask` is False; the others keep their order.

        Rows before the first one that goes stay where they are, if nobody has a view and most rows stay.
        """
        self._settle()
        count, first = int(np.count_nonzero(mask)), int(np.argmin(mask)) if len(mask) else 0
        buffers = self._buffers
        if 2 * count >= len(next(iter(buffers.values()))) and all(map(self._is_alone, buffers)):
            moved = [buffer[first : len(mask)][mask[first:]] for buffer in buffers.values()]
            for buffer, rows in zip(buffers.values(), moved, strict=True):
                buffer[first:count] = rows
        else:
            self._buffers = {name: view[mask] for name, view in self._views.items()}
        self.num_rows = count
        self._become_stale()
        self._refresh()

    def copy(self) -> Columns:
        """Independent columns with the same rows."""
        self._settle()
        other = Columns.__new__(Columns)
        other._buffers = {name: view.copy() for name, view in self._views.items()}
        other.num_rows = self.num_rows
        other.generation = 0
        other._fill = dict(self._fill)
        other._nobody_looks()
        other._refresh()
        return other

    def __getstate__(self) -> dict[str, object]:
        """Only the rows that are in use travel."""
        self.touch()  # whoever gets them may write
        return {"arrays": self._views, "num_rows": self.num_rows, "fill": self._fill}

    def __setstate__(self, state: dict) -> None:
        """Columns over the arrays as they were read."""
        self._buffers = dict(state["arrays"])
        self._fill = state.get("fill", {})
        self._nobody_looks()
        self.num_rows, self.generation = state["num_rows"], 0
        self._refresh()

    def _nobody_looks(self) -> None:
        self._asked: set[str] = set()
        """Columns of which somebody may have the present view."""
        self._handed: list[weakref.ref[np.ndarray]] = []
        """Earlier views of the present buffers."""
        self._prune_at = _PRUNE
        self._facts: dict[str, tuple[object, dict[Hashable, Any]]] = {}
        """By column its epoch and what was known of it then."""
        self._elsewhere: dict[str, Elsewhere] = {}
        """Columns whose numbers are not here yet."""
        self.touch()

    def _become_stale(self) -> None:
        """Views of the old buffers are read-only from now on."""
        self.generation += 1
        for old in (
            *self._views.values(),
            *(view for reference in self._handed if (view := reference()) is not None),
        ):
            old.flags.writeable = False
        self._handed.clear()
        self._asked.clear()

    def _refresh(self) -> None:
        """Views of the used rows; shorter ones of the same buffers that somebody may have are remembered."""
        self.touch()
        if self._asked:
            self._handed += [weakref.ref(self._views[name]) for name in self._asked]
            self._asked.clear()
            if len(self._handed) > self._prune_at:
                self._handed = [reference for reference in self._handed if reference() is not None]
                self._prune_at = max(_PRUNE, 2 * len(self._handed))
        self._views = {name: buffer[: self.num_rows] for name, buffer in self._buffers.items()}


def _references_alone() -> tuple[int, int]:
    """`Columns._references` of a column that nobody else refers to, as this Python counts."""
    columns = Columns({"one": ((), np.int64)})
    columns.append(1, {})
    return columns._references("one")


_ALONE = _references_alone()
