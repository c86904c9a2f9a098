"""Arrays of sets that other libraries have on the device, and what they are given there.

columns.offer(edge_set)          from now on `EdgeSet.device_array` and assignments ask here
kept_of(device, edge_set, name)  numbers that were assigned and are on the device
take_column(...)                 such numbers into records, or into blocks of edges
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphopt.device import DeviceMemoryError
from graphopt.device.cuda_arrays import CudaArray, CudaSide, KeptNumbers, cuda_side
from graphopt.foreign_arrays import CudaNumbers
from graphopt.graph.sets import INFORMATION_KIND
from graphopt.vulkan.program import LARGE_BYTES, VECTOR_WORKGROUP, Context, Launch, Program

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

    def _cuda(self) -> CudaSide | None:
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
        side = self._cuda()
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
        side = self._cuda()
        if side is None or numbers.shape != one_set.shape_of(name) or numbers.span >= LARGE_BYTES:
            return None
        try:
            kept = side.keep(self._device, numbers)
            if kept is not None and name == "information":
                kept.facts[INFORMATION_KIND] = information_kind(Context(self._device, "double"), kept)
            return kept
        except DeviceMemoryError:
            return None


def without_owner(method: Callable[..., Any], *first: Any) -> Pack:
    """A method with its first arguments, as long as its owner lives, which keeps who calls it."""
    weak = weakref.WeakMethod(method)
    return lambda digest, memory: None if (found := weak()) is None else found(*first, digest, memory)


def kept_of(device: Any, one_set: Any, name: str) -> KeptNumbers | None:
    """What was assigned to a column and is on this device, while nobody looks at it on the host."""
    kept = one_set.elsewhere(name)
    return kept if isinstance(kept, KeptNumbers) and kept.device is device else None


def take_column(
    context: Context,
    kept: KeptNumbers,
    columns: Sequence[int],
    places: tuple[int, Any],
    target: Any,
    layout: tuple[int, int, int],
) -> Launch:
    """Put some columns of (n, ...) numbers, counted in a row, into a buffer of the context's reals.

    places: how many, and a buffer of the row of each, None: place p has row p. layout: `first`, `lanes` and
    `block` of `take_column.comp`.
    """
    step, column = kept.strides()[0], context.indices(_offsets(kept, columns))
    num, rows = places
    params = (num, len(columns), int(rows is not None), kept.offset, step, *layout)
    buffers = (kept.buffer, column if rows is None else rows, column, target)
    groups = -(-num * len(columns) // VECTOR_WORKGROUP)
    return context.launch("take_column", buffers, params, groups, nbytes=16.0 * num * len(columns))


def information_kind(context: Context, kept: KeptNumbers) -> str:
    """`EdgeSet.information_kind` of matrices (n, d, d) on the device."""
    num, dim, _ = kept.numbers.shape
    column, found = context.indices(_offsets(kept, range(dim * dim))), context.indices(np.zeros(2))
    params = (num, dim, kept.offset, kept.strides()[0])
    groups = -(-num * dim * dim // VECTOR_WORKGROUP)
    launch = context.launch("information_kind", (kept.buffer, column, found), params, groups)
    Program(context).barrier().step([launch]).run()
    is_coupled, is_scaled = context.device.download(found, np.uint32, 2)
    return "full" if is_coupled else "diagonal" if is_scaled else "identity"


def _offsets(kept: KeptNumbers, columns: Sequence[int]) -> np.ndarray:
    """Of some numbers of a row, counted in a row, from its first, in numbers."""
    within = kept.strides()[1:]
    indices = np.unravel_index(np.asarray(columns), kept.numbers.shape[1:] or (1,))
    steps = (index * stride for index, stride in zip(indices, within, strict=False))
    return np.asarray(sum(steps, np.zeros(len(columns), int)))
