"""What a rank's device tells the others for the conjugate gradients, and how it gets there.

    message = [ rows that several ranks have | TAIL numbers that decide about the iteration ]
    total   = message_0 + message_1 + ...,  in the order of the ranks            in each iteration
    sums of the right side and of the diagonal blocks of S, likewise              before them

`HostMessage` and `HostSum` go down into pinned memory, are added there, and the sums go up again. Of a
`DeviceMessage` only the tail is added on the host, of a `DeviceSum` nothing: every device gets the rows of
all ranks and adds them itself, in the same order: the same bits in float64, and of two ranks in float32.
`RowsByPages`: each device writes its rows into memory of the host that all devices have imported, and reads
those of others. `RowsByNccl`: NCCL brings them from device to device.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.distributed.interface import Places
from graphopt.distributed.iterating import TAIL
from graphopt.distributed.nccl import NcclRank, SharedMemory
from graphopt.solver.vulkan.data.array import DeviceArray
from graphopt.solver.vulkan.program import Context, Launch, Program


@dataclass(frozen=True, eq=False)
class OnDevice:
    """`Places` as buffers of uint32."""

    count: int
    own: Any
    message: Any

    @classmethod
    def of(cls, context: Context, places: Places) -> OnDevice:
        """Brought there now."""
        return cls(len(places.own), context.indices(places.own), context.indices(places.message))


class Message(Protocol):
    """The way of a message; programs are recorded once, and run in every iteration."""

    turns: int
    """Programs of message 0, 1, ... differ, and repeat after so many."""
    buffer: Any
    """Kernels write `rows` numbers, then `TAIL`."""
    scalars: Any
    """Buffer with alpha and beta, ..."""
    first: int
    """... from this place on."""

    def record_sent(self, program: Program, turn: int) -> None:
        """Record what follows once the message of a turn is written."""
        ...

    def sent(self) -> np.ndarray:
        """Float64 for the host to sum over the ranks, the tail at its end, after the program has run."""
        ...

    def take(self, total: np.ndarray, alpha: float, beta: float) -> None:
        """Take these sums, before the program with `record_taken` runs."""
        ...

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """Record that sums of a turn's message, alpha and beta arrive, and the rows' sums in `target`."""
        ...

    def settle(self) -> None:
        """Nothing of it is under way any more."""
        ...

    def natively(self) -> tuple[Any, Any, int, Any]:
        """For native iterations: mapped buffers of what comes and goes, its rows, `Gather` or None."""
        ...


class HostMessage:
    """Through the host."""

    turns = 1

    def __init__(self, context: Context, rows: int):
        self._context, self._rows = context, rows
        self._sent = DeviceArray(context, rows + TAIL, is_mapped=False)
        self._total = DeviceArray(context, rows + 2)
        self.buffer, self.scalars, self.first = self._sent.buffer, self._total.buffer, rows

    def record_sent(self, program: Program, turn: int) -> None:
        """To the host."""
        self._sent.record_download(program)

    def sent(self) -> np.ndarray:
        """All of it: mapped memory itself, where that is what the device computes in."""
        return np.asarray(self._sent.downloaded, np.float64)

    def take(self, total: np.ndarray, alpha: float, beta: float) -> None:
        """Rows and scalars."""
        staging, rows = self._total.staging, self._rows
        staging[:rows] = total[:rows]
        staging[rows:] = alpha, beta
        self._total.commit()

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """From the host."""
        self._total.record_upload(program)
        program.barrier()
        count, context = places.count, self._context
        if count:
            groups = context.vector_groups(count)
            buffers = (places.message, places.own, self._total.buffer, target)
            program.step([context.launch("copy_entries", buffers, (count, groups), groups)])

    def settle(self) -> None:
        """Nothing goes on by itself."""

    def natively(self) -> tuple[Any, Any, int, Any]:
        """Everything by the host."""
        return self._sent.arriving, self._total.leaving, self._rows, None


class DeviceMessage:
    """Rows by `rows`, the tail by the host."""

    def __init__(self, context: Context, rows: Rows, count: int):
        """count: rows of a message; the buffer of `rows` has TAIL numbers more."""
        self._context, self._rows, self._count = context, rows, count
        self._tail = context.device.allocate(TAIL * context.real.itemsize, "readback")
        self._total = DeviceArray(context, 2)
        self.buffer, self.scalars, self.first = rows.buffer, self._total.buffer, 0
        self.turns = rows.turns

    def record_sent(self, program: Program, turn: int) -> None:
        """Rows to the others, the tail to the host."""
        size = self._context.real.itemsize
        program.copy(self.buffer, self._tail, TAIL * size, self._count * size)
        self._rows.record_sent(program, turn)

    def sent(self) -> np.ndarray:
        """The tail; the rows are on their way."""
        self._rows.begin()
        return self._tail.array(self._context.real, 0, TAIL).astype(np.float64)

    def take(self, total: np.ndarray, alpha: float, beta: float) -> None:
        """All ranks have met in the sum of the tails, so all have sent their rows."""
        self._rows.settle()
        self._total.staging[:] = alpha, beta
        self._total.commit()

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """The device adds what all ranks have sent."""
        self._total.record_upload(program)
        self._rows.record_arrived(program, turn)
        program.barrier()
        program.step(self._rows.added(places.count, places.message, places.own, target))

    def settle(self) -> None:
        """Wait for the rows."""
        self._rows.settle()

    def natively(self) -> tuple[Any, Any, int, Any]:
        """The tail by the host."""
        return self._tail, self._total.leaving, 0, self._rows.gather


# -------------------------------------------------------------------- what eliminations give


class Sum(Protocol):
    """Numbers of all ranks that each one's device wants the sums of, once per solve."""

    buffer: Any
    """Kernels write them."""

    def record_sent(self, program: Program) -> None:
        """Record what follows once they are written."""
        ...

    def sent(self) -> np.ndarray:
        """Float64 for the host to sum over the ranks, after the program has run; may be empty."""
        ...

    def take(self, total: np.ndarray) -> None:
        """Take these sums, before the program with `record_taken` runs."""
        ...

    def record_taken(self, program: Program) -> None:
        """Record that sums arrive."""
        ...

    def added(self, count: int, start: Any, end: Any, target: Any) -> list[Launch]:
        """target[end] = sums[start]; both are buffers of uint32."""
        ...

    def settle(self) -> None:
        """Nothing of it is under way any more."""
        ...


class HostSum:
    """Through the host."""

    def __init__(self, context: Context, count: int):
        self._context = context
        self._sent, self._total = DeviceArray(context, count, is_mapped=False), DeviceArray(context, count)
        self.buffer = self._sent.buffer

    def record_sent(self, program: Program) -> None:
        """To the host."""
        self._sent.record_download(program)

    def sent(self) -> np.ndarray:
        """All of them."""
        return self._sent.downloaded.astype(np.float64)

    def take(self, total: np.ndarray) -> None:
        """For the upload."""
        self._total.staging[:] = total
        self._total.commit()

    def record_taken(self, program: Program) -> None:
        """From the host."""
        self._total.record_upload(program)

    def added(self, count: int, start: Any, end: Any, target: Any) -> list[Launch]:
        """They are sums already."""
        if not count:
            return []
        groups = self._context.vector_groups(count)
        buffers = (start, end, self._total.buffer, target)
        return [self._context.launch("copy_entries", buffers, (count, groups), groups)]

    def settle(self) -> None:
        """Nothing goes on by itself."""


class DeviceSum:
    """By `Rows`, of which each device takes the sums it wants."""

    def __init__(self, rows: Rows):
        self._rows = rows
        self.buffer, self.added, self.settle = rows.buffer, rows.added, rows.settle

    def record_sent(self, program: Program) -> None:
        """To the others."""
        self._rows.record_sent(program, 0)

    def sent(self) -> np.ndarray:
        """Nothing by the host."""
        self._rows.begin()
        return np.empty(0)

    def take(self, total: np.ndarray) -> None:
        """All ranks have met since, so all have sent theirs."""
        self._rows.settle()

    def record_taken(self, program: Program) -> None:
        """From the others."""
        self._rows.record_arrived(program, 0)


# -------------------------------------------------------------------- numbers of all ranks on every device


class Rows(Protocol):
    """The same numbers of all ranks, on every device: one rank after the other."""

    turns: int
    """See `Message`."""
    buffer: Any
    """Kernels write this rank's."""
    gather: Any
    """What native code has to begin and to wait for, or None."""

    def record_sent(self, program: Program, turn: int) -> None:
        """Record what follows once the buffer is written."""
        ...

    def begin(self) -> None:
        """After that program has run."""
        ...

    def settle(self) -> None:
        """Once all ranks have begun: until everything is there."""
        ...

    def record_arrived(self, program: Program, turn: int) -> None:
        """Record that the numbers of a turn come; a barrier has to follow."""
        ...

    def added(self, count: int, start: Any, end: Any, target: Any) -> list[Launch]:
        """target[end] = sums of the ranks' numbers [start]; both are buffers of uint32."""
        ...


class _Gathered:
    """What all have sent, and its sums in the order of the ranks."""

    turns = 1
    gather: Any = None

    def __init__(self, context: Context, count: int, size: int, buffer: Any, gathered: Any):
        """buffer: of this rank; gathered: of size * count numbers."""
        self._context, self._count, self._size = context, count, size
        self.buffer, self._all = buffer, gathered

    def record_sent(self, program: Program, turn: int) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def settle(self) -> None:
        """Nothing goes on by itself."""

    def record_arrived(self, program: Program, turn: int) -> None:
        """It is there."""

    def added(self, count: int, start: Any, end: Any, target: Any) -> list[Launch]:
        """One kernel."""
        if not count:
            return []
        groups = self._context.vector_groups(count)
        params = (count, groups, self._size, self._count)
        return [self._context.launch("ranks_collect", (start, end, self._all, target), params, groups)]


class RowsByNccl(_Gathered):
    """From device to device."""

    def __init__(self, context: Context, count: int, extra: int, ranks: NcclRank):
        """extra: numbers of the buffer that stay."""
        size = context.real.itemsize
        self._ranks = ranks
        self._mine = SharedMemory(ranks, (count + extra) * size)
        self._shared = SharedMemory(ranks, ranks.size * count * size)
        super().__init__(context, count, ranks.size, self._mine.buffer, self._shared.buffer)
        self.gather = ranks.gather(self._mine, self._shared, count * size)
        weakref.finalize(self, _leave, self.gather, ranks)

    def begin(self) -> None:
        """In the background."""
        self.gather.begin()

    def settle(self) -> None:
        """Wait for the numbers."""
        self.gather.wait(self._ranks.device.timeout)


def _leave(gather: Any, ranks: NcclRank) -> None:
    """Another rank has failed before it sent its rows: nobody may wait for them, nor may memory go first."""
    if gather.is_pending:
        ranks.close()


class RowsByPages(_Gathered):
    """Through pages of the host that all devices have imported, which hold the numbers of `turns` turns.

    With two, who is done with one writes the next, while others may still read.
    """

    def __init__(
        self, context: Context, count: int, extra: int, pages: np.ndarray, turns: int, rank: int, size: int
    ):
        """extra: numbers of the buffer that stay. pages: `pages.shared_pages` of so many numbers."""
        self._stride, self.turns, self._rank = count * context.real.itemsize, turns, rank
        super().__init__(context, count, size, context.reals(count + extra), context.reals(size * count))
        device: Any = context.device
        self._pages = device.import_host(pages)

    def _place(self, turn: int, rank: int) -> int:
        """First byte of a rank's numbers."""
        return (turn % self.turns * self._size + rank) * self._stride

    def record_sent(self, program: Program, turn: int) -> None:
        """Into the pages, and where this device adds them."""
        if self._count:
            program.copy(self.buffer, self._pages, self._stride, 0, self._place(turn, self._rank))
            program.copy(self.buffer, self._all, self._stride, 0, self._rank * self._stride)

    def record_arrived(self, program: Program, turn: int) -> None:
        """Those of others from the pages."""
        for first, last in ((0, self._rank), (self._rank + 1, self._size)):
            nbytes, at = (last - first) * self._stride, first * self._stride
            if nbytes:
                program.copy(self._pages, self._all, nbytes, self._place(turn, first), at)
