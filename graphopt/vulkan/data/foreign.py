"""Arrays of sets that other libraries have on the device, and what they are given there.

columns.offer(edge_set)          from now on `EdgeSet.device_array` and assignments ask here
keep_rows(numbers, needs)        what a set that is new is given there
kept_of(device, edge_set, name)  numbers that were assigned or added and are on the device
take_column(...)                 such numbers into records, or into blocks of edges
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.device import DeviceMemoryError
from graphopt.device.cuda_arrays import CudaArray, CudaSide, KeptNumbers, cuda_side, device_with
from graphopt.foreign_arrays import CudaNumbers, Needs
from graphopt.graph.columns import Repeated, distinct_rows
from graphopt.graph.sets import INFORMATION_KIND
from graphopt.vulkan.program import LARGE_BYTES, NOTHING, VECTOR_WORKGROUP, Context, Launch, Program

SHARED = ("estimate", "measurement", "information", "kernel_width")
"""Columns that are handed over."""
Pack = Callable[[bytes, Any], Any]
"""(digest, memory) -> program that puts the numbers with this digest into the memory, None: not here."""


class ForeignColumns:
    """Implements `graph.sets.DeviceColumns`."""

    def __init__(self, context: Context):
        self._device = context.device
        self._side: CudaSide | None = None
        self._packs: weakref.WeakKeyDictionary[Any, dict[str, Pack]] = weakref.WeakKeyDictionary()
        self._lent: weakref.WeakKeyDictionary[Any, dict[str, tuple[bytes, CudaArray]]] = (
            weakref.WeakKeyDictionary()
        )
        """With the digest of the numbers."""

    def offer(self, one_set: Any, **packs: Pack) -> None:
        """Hand over a set's columns; packs: programs that have their numbers, by column."""
        self._packs.setdefault(one_set, {}).update(packs)
        self._lent.setdefault(one_set, {})
        one_set.on_device(self)

    def side(self) -> CudaSide | None:
        """What CUDA has of the device, None: nothing, or it is of no use."""
        if getattr(self._device, "is_lost", False) or not self._device.has_float64:
            return None
        if self._side is None:
            self._side = cuda_side(self._device)
        return self._side

    # ---------------------------------------------------------------- out

    def lend(self, one_set: Any, name: str) -> CudaArray | None:
        """See `graph.sets.DeviceColumns`. While the numbers are the same it is what was lent last."""
        if name not in SHARED and name not in self._packs[one_set]:
            return None
        side = self.side()
        if side is None:
            return None
        lent = self._lent[one_set]
        digest = one_set.fingerprint(name)
        before, array = lent.get(name, (b"", None))
        if digest == before:
            return array
        lent.pop(name, None)  # its memory may serve again
        array = self._copied(side, one_set, name, digest)
        lent[name] = digest, array
        return array

    def _copied(self, side: CudaSide, one_set: Any, name: str, digest: bytes) -> CudaArray:
        """An array with the numbers of a column, which have this digest."""
        shape = one_set.shape_of(name)
        memory = side.take(self._device, max(8 * math.prod(shape), 16))
        pack = self._packs[one_set].get(name)
        program = None if pack is None else pack(digest, memory)
        kept = kept_of(self._device, one_set, name)
        if program is None and kept is not None and kept.numbers.span == 8 * math.prod(shape):
            side.copy(memory, kept.numbers)
        elif program is None:
            self._device.write(memory.buffer, np.ascontiguousarray(one_set.numbers_of(name)))
        return side.lend(self._device, memory, shape, program)

    # ---------------------------------------------------------------- in

    def take(self, one_set: Any, name: str, numbers: CudaNumbers) -> KeptNumbers | None:
        """See `graph.sets.DeviceColumns`; None also past 4 GiB, or of more than the device has left."""
        side = self.side()
        if side is None or numbers.shape != one_set.shape_of(name):
            return None
        with suppress(DeviceMemoryError):
            kept = _kept(self._device, side, numbers)
            if kept is not None and name == "information":
                _look(kept)
            return kept
        return None


def keep_rows(numbers: CudaNumbers, needs: Needs) -> KeptNumbers | None:
    """See `foreign_arrays.kept`: a copy on the device, where that is what it needs to be."""
    device = device_with(numbers.device)
    if device is None or device.is_lost or not device.has_float64 or len(needs.quaternions) > 1:
        return None
    with suppress(DeviceMemoryError):
        side = cuda_side(device)
        kept = None if side is None else _kept(device, side, numbers)
        return kept if kept is not None and _look(kept, needs.quaternions).are(needs) else None
    return None


def _kept(device: Any, side: CudaSide, numbers: CudaNumbers) -> KeptNumbers | None:
    """As float64."""
    if max(numbers.span, 8 * math.prod(numbers.shape)) >= LARGE_BYTES:
        return None
    kept = side.keep(device, numbers)
    return kept if kept is None or numbers.dtype == np.float64 else _widened(device, side, kept)


def _widened(device: Any, side: CudaSide, kept: KeptNumbers) -> KeptNumbers:
    """Numbers in float32 as float64, without gaps."""
    context, shape = Context(device, "double"), kept.shape
    num, size = shape[0], math.prod(shape[1:])
    memory = side.take(device, max(8 * num * size, 16))
    buffers = (kept.buffer, context.indices(_offsets(kept, range(size))), memory.buffer)
    params = (num, size, kept.offset, kept.strides()[0])
    launch = context.launch("widen_rows", buffers, params, -(-num * size // VECTOR_WORKGROUP))
    Program(context).barrier().step([launch]).run()
    return side.filled(device, memory, shape)


def _look(kept: KeptNumbers, quaternions: Sequence[int] = ()) -> RowFacts:
    """What the numbers have in common; of matrices their kind is known from now on."""
    facts = RowFacts.of(Context(kept.device, "double"), kept, quaternions)
    if len(kept.shape) == 3:
        kept.facts[INFORMATION_KIND] = facts.kind
    return facts


def without_owner(method: Callable[..., Any], *first: Any) -> Pack:
    """A method with its first arguments, as long as its owner lives, which keeps who calls it."""
    weak = weakref.WeakMethod(method)
    return lambda digest, memory: None if (found := weak()) is None else found(*first, digest, memory)


def kept_of(device: Any, one_set: Any, name: str) -> KeptNumbers | None:
    """What was assigned to a column and is on this device, while nobody looks at it on the host."""
    kept = one_set.elsewhere(name)
    return kept if isinstance(kept, KeptNumbers) and kept.device is device else None


class Rows(Protocol):
    """Numbers on the device, a row for each vertex or edge."""

    buffer: Any
    offset: int
    """Of the first number in the buffer, in numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and what each has."""
        ...

    def strides(self) -> tuple[int, ...]:
        """In numbers."""
        ...


@dataclass(eq=False)
class UploadedRows:
    """Rows of a column of the host; one that stands for all is there once."""

    buffer: Any
    shape: tuple[int, ...]
    step: int
    offset: int = 0

    @classmethod
    def of(cls, device: Any, one_set: Any, name: str) -> UploadedRows:
        """The present numbers of a column."""
        source = one_set.elsewhere(name)
        rows = source.row[None] if isinstance(source, Repeated) else distinct_rows(one_set.look(name))
        shape = one_set.shape_of(name)
        step = 0 if len(rows) < shape[0] else math.prod(shape[1:])
        return cls(device.upload(np.ascontiguousarray(rows, np.float64)), shape, step)

    def strides(self) -> tuple[int, ...]:
        """In numbers."""
        return self.step, *(math.prod(self.shape[k:]) for k in range(2, len(self.shape) + 1))


def rows_of(device: Any, one_set: Any, names: Iterable[str]) -> Mapping[str, Rows] | None:
    """Columns on the device, with those of the host if some are there already; None: none is."""
    here = {name: kept_of(device, one_set, name) for name in names}
    if all(one is None for one in here.values()):
        return None
    return {name: one or UploadedRows.of(device, one_set, name) for name, one in here.items()}


def take_column(
    context: Context,
    source: Rows,
    columns: Sequence[int],
    places: tuple[int, Any],
    target: Any,
    layout: tuple[int, int, int],
) -> Launch:
    """Put some columns of (n, ...) numbers, counted in a row, into a buffer of the context's reals.

    places: how many, and a buffer of the row of each, None: place p has row p. layout: `first`, `lanes` and
    `block` of `take_column.comp`.
    """
    step, column = source.strides()[0], context.indices(_offsets(source, columns))
    num, rows = places
    params = (num, len(columns), int(rows is not None), source.offset, step, *layout)
    buffers = (source.buffer, column if rows is None else rows, column, target)
    groups = -(-num * len(columns) // VECTOR_WORKGROUP)
    return context.launch("take_column", buffers, params, groups, nbytes=16.0 * num * len(columns))


@dataclass(frozen=True)
class RowFacts:
    """What rows on the device have in common, see `row_facts.comp`."""

    is_finite: bool
    is_positive: bool
    has_unit_quaternions: bool
    is_symmetric: bool
    kind: str
    """`EdgeSet.information_kind` of matrices."""

    @classmethod
    def of(cls, context: Context, rows: Rows, quaternions: Sequence[int] = ()) -> RowFacts:
        """Look at (n, ...) numbers; matrices are (n, d, d). quaternions: first column of one at most."""
        num, size = rows.shape[0], math.prod(rows.shape[1:])
        dim = rows.shape[-1] if len(rows.shape) == 3 else 0
        column, found = context.indices(_offsets(rows, range(size))), context.indices(np.zeros(6))
        quaternion = quaternions[0] if quaternions else NOTHING
        params = (num, size, dim, quaternion, rows.offset, rows.strides()[0])
        groups = -(-num * size // VECTOR_WORKGROUP)
        launch = context.launch("row_facts", (rows.buffer, column, found), params, groups)
        Program(context).barrier().step([launch]).run()
        wrong = context.device.download(found, np.uint32, 6) != 0
        is_finite, is_positive, has_unit_quaternions, is_symmetric = (~wrong[:4]).tolist()
        kind = "full" if wrong[4] else "diagonal" if wrong[5] else "identity"
        return cls(is_finite, is_positive, has_unit_quaternions, is_symmetric, kind)

    def are(self, needs: Needs) -> bool:
        """They are finite, and what else they need to be."""
        pairs = (
            (needs.is_positive, self.is_positive),
            (len(needs.quaternions) > 0, self.has_unit_quaternions),
            (needs.is_symmetric, self.is_symmetric),
        )
        return self.is_finite and all(found for needed, found in pairs if needed)


def _offsets(rows: Rows, columns: Sequence[int]) -> np.ndarray:
    """Of some numbers of a row, counted in a row, from its first, in numbers."""
    within = rows.strides()[1:]
    indices = np.unravel_index(np.asarray(columns), rows.shape[1:] or (1,))
    steps = (index * stride for index, stride in zip(indices, within, strict=False))
    return np.asarray(sum(steps, np.zeros(len(columns), int)))
