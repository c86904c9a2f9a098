"""Launches that write sums of the same rows: their order, the barriers between them, which assign, which add.

A launch that writes a row after another one adds to what is there, and a barrier stands between them. Those
without common rows run side by side. Launches with most rows go first: they assign, and the others, whose
rows are then all written, add fewer numbers.

Device, precision and small helpers that all parts of the solver share.

Sums over so many edges that one workgroup, or one invocation, would take too long: cut into parts.

A destination of a view with more than `LONG` edges, and more than its share of the view's edges, is cut
into parts of at most `PART` edges. A workgroup adds up a part like a short destination, but into a buffer of
parts; `fold_parts` adds these up per destination, in order. A block of H that more than `LONG_BLOCK` edges
contribute to is cut likewise, into parts of at most `BLOCK_PART` edges, each the work of one invocation.

What is cut depends on the graph only, never on the device: two runs give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.vulkan.data.layout import BlockLayout, as_slice, split_segments
from graphopt.vulkan.data.views import BLOCK_PART, LongDestinations
from graphopt.vulkan.program import ACCUMULATOR_BYTES, VECTOR_WORKGROUP, Context, Launch


@dataclass(frozen=True, eq=False)
class WritePlan:
    """The order of some launches."""

    steps: list[list[int]]
    """Launches between two barriers, by number; no two of a step write one row."""
    adds: list[bool]
    """Per launch whether it adds to what is there."""
    clears: bool
    """All must add to zeros: some row is written by no launch, or a launch has rows of both kinds."""
    touched: np.ndarray
    """(num_rows,) bool: rows that some launch writes."""


def plan_writes(
    writes: Sequence[np.ndarray], num_rows: int, needed: np.ndarray | slice | None = None
) -> WritePlan:
    """The plan of launches that write these rows. needed: rows that must hold sums or zeros, None: all."""
    step_of_row = np.zeros(num_rows, np.uint16)  # first step that may write it; 0: nobody has
    steps: list[list[int]] = []
    adds = [False] * len(writes)
    is_mixed = False
    for number in sorted(range(len(writes)), key=lambda number: -len(writes[number])):
        rows = as_slice(writes[number])
        earliest = step_of_row[rows]
        step = int(earliest.max(initial=0))
        adds[number] = step > 0
        is_mixed |= adds[number] and not earliest.all()
        steps += [[] for _ in range(step + 1 - len(steps))]
        steps[step].append(number)
        step_of_row[rows] = step + 1
    touched = step_of_row > 0
    clears = is_mixed or not bool(touched[slice(None) if needed is None else needed].all())
    return WritePlan(steps, [add or clears for add in adds], clears, touched)


def gather_diagonal(
    context: Context,
    read: Any,
    target: Any,
    num_rows: int,
    first: int = 0,
    runs: int = 0,
    largest: Any = None,
) -> Launch:
    """The first entries of H's diagonal into a buffer, from `first` on.

    read: places of the entries, the values, b. runs: of the places, 0: a table. target: None: nowhere.
    largest: accumulators for largest entries of H's diagonal and b, by workgroup.
    """
    groups, b = context.vector_groups(num_rows), read[2]
    buffers = (*read, target or b, largest or context.accumulators(2 * groups))
    constants = {1: runs, 2: int(target is not None), 3: first}
    return context.launch("gather_diagonal", buffers, (num_rows, groups), groups, constants)


def gather_scalars(context: Context, partial: Any, num_groups: int, result: Any, *, sums: bool) -> Launch:
    """Two scalars from the parts of workgroups: the sum or the largest of the first, the largest second."""
    return context.launch("gather_scalars", (partial, result), (num_groups,), 1, {1: int(sums)})


ASSIGN, ADD, SUBTRACT = range(3)
"""What `Fold` does with what is there, as in fold_parts.comp."""


class Fold:
    """The sums of parts, on the device."""

    def __init__(self, context: Context, first: np.ndarray):
        """first: (num_sums + 1,) first part of each sum."""
        self.num_sums = len(first) - 1
        self._first = context.indices(first)
        mean = int(first[-1]) // max(self.num_sums, 1)
        self._lanes = min(VECTOR_WORKGROUP, 1 << max(mean // 4, 1).bit_length() - 1)
        self.nbytes = 4 * len(first)

    def launch(
        self,
        context: Context,
        buffers: tuple[Any, Any, Any],
        outputs: tuple[int, int],
        stride: int,
        mode: int,
        sums: tuple[int, int] | None = None,
        stop: tuple[Any, int | None] | None = None,
        are_sums: bool = True,
    ) -> Launch:
        """Fold the entries outputs[0] to outputs[1] of parts of `stride` entries each.

        buffers: the parts; where each sum begins in the target; the target. sums: a range of them. stop:
        status and ping_pong of the conjugate gradient iteration that it belongs to. are_sums: parts are
        accumulators, else reals.
        """
        begin, end = sums or (0, self.num_sums)
        parts, destination, target = buffers
        status, ping_pong = stop or (self._first, None)
        num_outputs = outputs[1] - outputs[0]
        constants = {1: self._lanes, 2: int(ping_pong is not None), 3: int(are_sums)}
        params = (begin, end - begin, num_outputs, stride, outputs[0], mode, ping_pong or 0)
        groups = -(-(end - begin) * num_outputs * self._lanes // VECTOR_WORKGROUP)
        all_buffers = (parts, self._first, destination, target, status)
        return context.launch("fold_parts", all_buffers, params, groups, constants)


class LongArrays:
    """The long destinations of a view on the device."""

    def __init__(self, context: Context, long: LongDestinations, blocks: np.ndarray, layout: BlockLayout):
        """blocks: of the destinations."""
        self.long = long
        self._fold = Fold(context, long.part)
        self.dim = int(layout.dims[blocks[0]])
        num = long.num_parts
        self._parts = context.device.allocate(ACCUMULATOR_BYTES * num * self.dim * (self.dim + 1))
        numbers = np.arange(num + 1)
        self.buffers: dict[str, Any] = {
            "first": context.indices(long.first),
            "tiles": context.indices(numbers),
            "dest_scalar": context.indices(self.dim * numbers),
            "parts": self._parts,
            "y": self._parts,
        }
        """What kernels over parts, in place of destinations, read and write by other names."""
        self._block = context.indices(layout.diagonal_offset[blocks])
        self._scalar = context.indices(layout.scalar[blocks])
        self.nbytes = self._parts.size + 12 * (num + 1) + 8 * len(blocks) + self._fold.nbytes

    @property
    def num_sums(self) -> int:
        """Long destinations."""
        return self._fold.num_sums

    def fold_linearized(self, context: Context, values: Any, b: Any, *, accumulate: bool) -> list[Launch]:
        """H_aa and b_a from the parts that a linearize kernel has left."""
        size, mode = self.dim**2, ADD if accumulate else ASSIGN
        stride = size + self.dim
        blocks, segments = (self._parts, self._block, values), (self._parts, self._scalar, b)
        return [
            self._fold.launch(context, blocks, (0, size), stride, mode),
            self._fold.launch(context, segments, (size, stride), stride, mode),
        ]

    def fold_schur_diagonal(
        self, context: Context, values: Any, sums: tuple[int, int], *, adds: bool = False
    ) -> Launch:
        """Subtract, or add, the parts that a Schur diagonal kernel has left."""
        size, buffers = self.dim**2, (self._parts, self._block, values)
        return self._fold.launch(context, buffers, (0, size), size, ADD if adds else SUBTRACT, sums)

    def fold_product(
        self, context: Context, y: Any, sums: tuple[int, int], stop: tuple[Any, int | None], accumulate: bool
    ) -> Launch:
        """y_a from the parts that a product has left; stop: as `Fold.launch`."""
        buffers, mode = (self._parts, self._scalar, y), ADD if accumulate else ASSIGN
        return self._fold.launch(context, buffers, (0, self.dim), self.dim, mode, sums, stop, False)


class LongBlocks:
    """Blocks of H with many edges each on the device: the entries of a pair list, cut."""

    def __init__(self, context: Context, first: np.ndarray, offset: np.ndarray, size: int):
        """first (n + 1,): entries of each block; offset (n,): where it begins; size: its scalars."""
        segment, begin, _ = split_segments(first.astype(np.int64), BLOCK_PART)
        self.num_parts, self._size = len(segment), size
        self._fold = Fold(context, np.searchsorted(segment, np.arange(len(offset) + 1)))
        self._parts = context.device.allocate(8 * max(self.num_parts, 1) * size)
        self.buffers: dict[str, Any] = {
            "pair_first": context.indices(np.append(begin, first[-1])),
            "pair_block": context.indices(size * np.arange(self.num_parts)),
            "values": self._parts,
        }
        """What a pair kernel over parts reads and writes by other names."""
        self._offset = context.indices(offset)
        self.nbytes = self._parts.size + 8 * self.num_parts + 4 * len(offset) + self._fold.nbytes

    def fold(self, context: Context, values: Any, *, accumulate: bool) -> Launch:
        """The blocks."""
        buffers, mode = (self._parts, self._offset, values), ADD if accumulate else ASSIGN
        return self._fold.launch(context, buffers, (0, self._size), self._size, mode, are_sums=False)


@dataclass(frozen=True)
class LaunchGroup:
    """The launches of one pass of sums over edges."""

    direct: Sequence[Launch]
    """They write the results of short sums."""
    parts: Sequence[Launch] = ()
    """They write parts, which nobody else writes."""
    folds: Sequence[Launch] = ()
    """They write the results of long sums, after the parts and a barrier."""


def steps_of(
    passes: Sequence[LaunchGroup], steps: Sequence[Sequence[int]], before: Sequence[Launch] = ()
) -> Iterator[list[Launch]]:
    """Launches of one step do not depend on each other, a barrier follows each. before: of the first step.

    steps: numbers of the passes that write different rows, as in `write_plan`.
    """
    step = [*before, *(launch for pass_ in passes for launch in pass_.parts)]
    for numbers in steps:
        step += [launch for number in numbers for launch in passes[number].direct]
        yield from filter(None, (step, [launch for number in numbers for launch in passes[number].folds]))
        step = []
    yield from filter(None, (step,))
