"""What a rank's device tells the others for the conjugate gradients, and how it gets there.

    message = [ rows that several ranks have | TAIL numbers that decide about the iteration ]
    total   = message_0 + message_1 + ...,  in the order of the ranks            in each iteration
    sums of the right side and of the diagonal blocks of S, likewise              before them

`HostMessage` and `HostSum` go down into pinned memory, are added there, and the sums go up again. Of a
`DeviceMessage` only the tail is added on the host, of a `DeviceSum` nothing: every device gets the rows of
all ranks and adds them itself, in the same order: the same bits in float64, and of two ranks in float32.
`Rows`: each device writes its rows into memory of the host that all devices have imported, and reads those
of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.distributed.interface import Places
from graphopt.distributed.protocol import TAIL
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.program import Context, Launch, Program


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

    def natively(self) -> tuple[Any, Any, int]:
        """For native iterations: mapped buffers of what comes and goes, and the rows in them."""
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

    def natively(self) -> tuple[Any, Any, int]:
        """Everything by the host."""
        return self._sent.arriving, self._total.leaving, self._rows


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
        return self._tail.array(self._context.real, 0, TAIL).astype(np.float64)

    def take(self, total: np.ndarray, alpha: float, beta: float) -> None:
        """All ranks have met in the sum of the tails, so all have sent their rows."""
        self._total.staging[:] = alpha, beta
        self._total.commit()

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """The device adds what all ranks have sent."""
        self._total.record_upload(program)
        self._rows.record_arrived(program, turn)
        program.barrier()
        program.step(self._rows.added(places.count, places.message, places.own, target))

    def natively(self) -> tuple[Any, Any, int]:
        """The tail by the host."""
        return self._tail, self._total.leaving, 0


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


class DeviceSum:
    """By `Rows`, of which each device takes the sums it wants."""

    def __init__(self, rows: Rows):
        self._rows = rows
        self.buffer, self.added = rows.buffer, rows.added

    def record_sent(self, program: Program) -> None:
        """To the others."""
        self._rows.record_sent(program, 0)

    def sent(self) -> np.ndarray:
        """Nothing by the host."""
        return np.empty(0)

    def take(self, total: np.ndarray) -> None:
        """All ranks have met since, so all have sent theirs."""

    def record_taken(self, program: Program) -> None:
        """From the others."""
        self._rows.record_arrived(program, 0)


# -------------------------------------------------------------------- numbers of all ranks on every device


class Rows:
    """The same numbers of all ranks on every device, through pages of the host.

    All devices have imported the pages, which hold the scalars of `turns` turns. With two, a rank that has
    finished one turn writes the next, while others may still read.
    """

    def __init__(
        self, context: Context, count: int, extra: int, pages: np.ndarray, turns: int, rank: int, size: int
    ):
        """extra: numbers of the buffer that stay. pages: `pages.shared_pages` of so many numbers."""
        self._context, self._count, self._rank, self._size = context, count, rank, size
        self._stride, self.turns = count * context.real.itemsize, turns
        self.buffer = context.reals(count + extra)
        """Kernels write this rank's numbers."""
        self._all = context.reals(size * count)
        device: Any = context.device
        self._pages = device.import_host(pages)

    def _page_offset(self, turn: int, rank: int) -> int:
        """First byte of a rank's numbers."""
        return (turn % self.turns * self._size + rank) * self._stride

    def record_sent(self, program: Program, turn: int) -> None:
        """Record what follows once the buffer is written: into the pages, and where this device adds them."""
        if self._count:
            program.copy(self.buffer, self._pages, self._stride, 0, self._page_offset(turn, self._rank))
            program.copy(self.buffer, self._all, self._stride, 0, self._rank * self._stride)

    def record_arrived(self, program: Program, turn: int) -> None:
        """Record that the numbers of the others' turn come from the pages; a barrier has to follow."""
        for first, last in ((0, self._rank), (self._rank + 1, self._size)):
            nbytes, offset = (last - first) * self._stride, first * self._stride
            if nbytes:
                program.copy(self._pages, self._all, nbytes, self._page_offset(turn, first), offset)

    def added(self, count: int, start: Any, end: Any, target: Any) -> list[Launch]:
        """target[end] = sums of the ranks' numbers [start], in the order of the ranks.

        start, end: buffers of uint32.
        """
        if not count:
            return []
        groups = self._context.vector_groups(count)
        params = (count, groups, self._size, self._count)
        return [self._context.launch("ranks_collect", (start, end, self._all, target), params, groups)]
