"""What a rank's device tells the others in an iteration of the conjugate gradients, and how it gets there.

    message = [ rows that several ranks have | TAIL numbers that decide about the iteration ]
    total   = message_0 + message_1 + ...,  in the order of the ranks

`HostMessage` goes down into pinned memory, is added there, and the sums go up again. Else only the tail is
added on the host, and every device gets the rows of all ranks and adds them itself, in the same order: the
same bits in float64, and of two ranks in float32. `PagesMessage`: each device writes its rows into memory of
the host that all devices have imported, and reads those of all. `GatheredMessage`: NCCL brings them from
device to device.
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
from graphopt.solver.vulkan.program import Context, Program


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


class _RowsOfAll:
    """Every device gets the rows of all ranks."""

    turns = 1

    def __init__(self, context: Context, rows: int, size: int, message: Any, gathered: Any):
        """message: buffer of rows + TAIL numbers; gathered: of size * rows."""
        self._context, self._rows, self._size, self._gathered = context, rows, size, gathered
        self._tail = context.device.allocate(TAIL * context.real.itemsize, "readback")
        self._total = DeviceArray(context, 2)
        self.buffer, self.scalars, self.first = message, self._total.buffer, 0

    def record_sent(self, program: Program, turn: int) -> None:
        """The tail to the host."""
        size = self._context.real.itemsize
        program.copy(self.buffer, self._tail, TAIL * size, self._rows * size)

    def sent(self) -> np.ndarray:
        """The tail."""
        return self._tail.array(self._context.real, 0, TAIL).astype(np.float64)

    def take(self, total: np.ndarray, alpha: float, beta: float) -> None:
        """All ranks have met in the sum of the tails, so all have sent their rows."""
        self.settle()
        self._total.staging[:] = alpha, beta
        self._total.commit()

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """The device adds what all ranks have sent."""
        self._total.record_upload(program)
        program.barrier()
        count, context = places.count, self._context
        if count:
            groups = context.vector_groups(count)
            buffers = (places.message, places.own, self._gathered, target)
            params = (count, groups, self._size, self._rows)
            program.step([context.launch("ranks_collect", buffers, params, groups)])

    def settle(self) -> None:
        """Nothing goes on by itself."""

    def natively(self) -> tuple[Any, Any, int, Any]:
        """The tail by the host."""
        return self._tail, self._total.leaving, 0, None


class GatheredMessage(_RowsOfAll):
    """Rows from device to device."""

    def __init__(self, context: Context, rows: int, ranks: NcclRank):
        size = context.real.itemsize
        self._ranks = ranks
        self._mine = SharedMemory(ranks, (rows + TAIL) * size)
        self._all = SharedMemory(ranks, ranks.size * rows * size)
        super().__init__(context, rows, ranks.size, self._mine.buffer, self._all.buffer)
        self._gather = ranks.gather(self._mine, self._all, rows * size)
        weakref.finalize(self, _leave, self._gather, ranks)

    def sent(self) -> np.ndarray:
        """The tail; the rows are on their way."""
        self._gather.begin()
        return super().sent()

    def settle(self) -> None:
        """Wait for the rows."""
        self._gather.wait(self._ranks.device.timeout)

    def natively(self) -> tuple[Any, Any, int, Any]:
        """The tail by the host."""
        return self._tail, self._total.leaving, 0, self._gather


def _leave(gather: Any, ranks: NcclRank) -> None:
    """Another rank has failed before it sent its rows: nobody may wait for them, nor may memory go first."""
    if gather.is_pending:
        ranks.close()


class PagesMessage(_RowsOfAll):
    """Rows through pages of the host that all devices have imported.

    There are two halves, one for every other message: who is done with a message writes the next one, while
    others may still read.
    """

    turns = 2

    def __init__(self, context: Context, rows: int, pages: np.ndarray, rank: int, size: int):
        """pages: `pages.shared_pages` for messages of so many rows."""
        self._stride = rows * context.real.itemsize
        own, gathered = context.reals(rows + TAIL), context.reals(size * rows)
        super().__init__(context, rows, size, own, gathered)
        device: Any = context.device
        self._pages, self._rank = device.import_host(pages), rank

    def _place(self, turn: int, rank: int) -> int:
        """First byte of a rank's rows."""
        return (turn % 2 * self._size + rank) * self._stride

    def record_sent(self, program: Program, turn: int) -> None:
        """The rows into the pages, and where this device adds them."""
        super().record_sent(program, turn)
        if self._rows:
            program.copy(self.buffer, self._pages, self._stride, 0, self._place(turn, self._rank))
            program.copy(self.buffer, self._gathered, self._stride, 0, self._rank * self._stride)

    def record_taken(self, program: Program, turn: int, places: OnDevice, target: Any) -> None:
        """The rows of others from the pages."""
        for first, last in ((0, self._rank), (self._rank + 1, self._size)):
            nbytes, at = (last - first) * self._stride, first * self._stride
            if nbytes:
                program.copy(self._pages, self._gathered, nbytes, self._place(turn, first), at)
        super().record_taken(program, turn, places, target)
