"""What the ranks of a distributed optimization need from each other: a handful of collectives.

    sum(x)        x_0 + x_1 + ... + x_(n-1), added in the order of the ranks, the same bits on all of them
    share(object) the objects of all ranks, by rank
    scatter(make) make(rank) of one rank to each
    collect       the objects of all ranks, on one

A sum in a fixed order makes a run repeatable bit by bit for a number of ranks, whatever the transport does.
`mpi.MpiCommunicator` is MPI through mpi4py; `ThreadRanks` are threads of one process.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from graphopt.errors import GraphOptError
from graphopt.thread_switching import switching

T = TypeVar("T")
SWITCH_SECONDS = 5e-5
"""While ranks are threads: one that comes back from its device waits less for the Python of others."""


class RankError(GraphOptError, RuntimeError):
    """A rank failed, and with it all others; the message names it."""


def agreed(error: Exception) -> Exception:
    """The error, which all ranks raise here: none waits for another."""
    error.is_agreed = True  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    """All ranks have raised it."""
    return getattr(error, "is_agreed", False)


class Communicator(Protocol):
    """Collectives: every rank calls the same ones in the same order."""

    rank: int
    size: int
    seconds: float
    """Spent in collectives so far, waiting for others included."""

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum of arrays (n,) float64 in the order of the ranks."""
        ...

    def share(self, value: Any) -> list[Any]:
        """The objects of all ranks, by rank."""
        ...

    def scatter(self, make: Callable[[int], Any] | None, root: int = 0) -> Any:
        """What rank `root` makes for this rank: make(rank)."""
        ...

    def collect(self, value: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks on rank `root`, None on the others."""
        ...

    def host_of(self) -> str:
        """Name of the machine that this rank runs on."""
        ...

    def group(self, size: int) -> Communicator | None:
        """That of the first `size` ranks, the same in every call; None on the others. All ranks call it."""
        ...


def add_in_order(parts: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """parts[0] + parts[1] + ..., from the left."""
    total = np.array(parts[0])
    for part in parts[1:]:
        total += part
    return total


class ThreadRanks:
    """The common part of ranks that are threads of one process.

    Slots are two: who has passed the barrier of one collective writes those of the next, while others still
    read.
    """

    def __init__(self, size: int, whole: ThreadRanks | None = None):
        """whole: the ranks of which these are the first."""
        self.size, self.whole = size, whole or self
        self.slots: list[list[Any]] = [[None] * size, [None] * size]
        self.barrier = threading.Barrier(size)
        self._lock = threading.Lock()
        self._rank_barrier: Any = None
        self.is_aborted = False
        self._groups: dict[int, ThreadRanks] = {}
        self.members = [ThreadCommunicator(self, rank) for rank in range(size)]

    def group(self, size: int) -> ThreadRanks:
        """The first of these ranks."""
        with self._lock:
            return self._groups.setdefault(size, ThreadRanks(size, self))

    def rank_barrier(self, runtime: Any) -> Any:
        """Where native code of the ranks meets: one of the Vulkan runtime's, made for whoever comes first."""
        with self._lock:
            if self._rank_barrier is None:
                self._rank_barrier = runtime.RankBarrier(self.size)
                if self.is_aborted:
                    self._rank_barrier.abort()
            return self._rank_barrier

    def abort(self) -> None:
        """Let all who wait, now or later, end with an error."""
        with self._lock:
            self.is_aborted = True
            if self._rank_barrier is not None:
                self._rank_barrier.abort()
        self.barrier.abort()
        for group in list(self._groups.values()):
            group.abort()


class ThreadCommunicator:
    """One rank of `ThreadRanks`; of one rank alone, a communicator without anybody to talk to."""

    def __init__(self, ranks: ThreadRanks | None = None, rank: int = 0):
        self.ranks = ranks or ThreadRanks(1)
        self.rank, self.size = rank, self.ranks.size
        self.seconds = 0.0
        self._number = 0

    def _met(self, value: Any) -> list[Any]:
        """What all ranks bring to a collective."""
        start = time.perf_counter()
        slots = self.ranks.slots[self._number % 2]
        self._number += 1
        slots[self.rank] = value
        self.ranks.barrier.wait()
        found = list(slots)
        self.seconds += time.perf_counter() - start
        return found

    def rank_barrier(self, runtime: Any) -> Any:
        """Where native code of these ranks meets."""
        return self.ranks.rank_barrier(runtime)

    def share(self, value: Any) -> list[Any]:
        """The objects of all ranks; they are the very objects, not copies."""
        return [value] if self.size == 1 else self._met(value)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum in the order of the ranks; of copies: `values` may change while others still add."""
        if self.size == 1:
            return np.array(values)
        start, waited = time.perf_counter(), self.seconds
        total = add_in_order(self._met(np.array(values, np.float64)))
        self.seconds = waited + time.perf_counter() - start
        return total

    def scatter(self, make: Callable[[int], Any] | None, root: int = 0) -> Any:
        """Each thread makes its own."""
        return self.share(make)[root](self.rank)

    def collect(self, value: Any, root: int = 0) -> list[Any] | None:
        """All objects on `root`."""
        found = self.share(value)
        return found if self.rank == root else None

    def host_of(self) -> str:
        """This machine."""
        return platform.node()

    def group(self, size: int) -> ThreadCommunicator | None:
        """The first ranks."""
        if size == self.size:
            return self
        return self.ranks.group(size).members[self.rank] if self.rank < size else None


def run_as_threads(
    size: int, work: Callable[[ThreadCommunicator], T], ranks: ThreadRanks | None = None
) -> list[T]:
    """`work(communicator)` in `size` threads, rank 0 in the calling one; what they return, by rank.

    Where one raises, the others end, and `RankError` names the first; an error of rank 0 that is not an
    error of this library (Ctrl-C) is raised as it is. ranks: of an earlier run that went well.
    """
    ranks = ranks or ThreadRanks(size)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = work(ranks.members[rank])
        except BaseException as error:
            errors[rank] = error
            ranks.abort()

    threads = [
        threading.Thread(target=one, args=(rank,), name=f"graphopt-rank-{rank}") for rank in range(1, size)
    ]
    with switching(SWITCH_SECONDS):
        for thread in threads:
            thread.start()
        one(0)
        for thread in threads:
            thread.join()
    _raise_first(errors)
    return results


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    """Raise the error that ended the others."""
    own = [
        (rank, error)
        for rank, error in enumerate(errors)
        if error is not None and not isinstance(error, threading.BrokenBarrierError)
    ]
    if not own:
        return
    rank, error = own[0]
    if is_agreed(error) or not isinstance(error, Exception):
        raise error
    raise RankError(sentence_of(rank, error)) from error


def sentence_of(rank: int, error: BaseException) -> str:
    """What is told to all about the error of one rank."""
    what = "out of memory." if isinstance(error, MemoryError) and not str(error) else str(error)
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if not isinstance(error, GraphOptError | OSError | MemoryError):
        what = f"{type(error).__name__}: {what}"
    return f"Rank {rank}: {what}"


def together(comm: Communicator, work: Callable[[], T]) -> T:
    """`work()` of each rank, without collectives in it; where one fails, all raise what it says.

    Errors of the library keep their class where all ranks have the same.
    """
    result, error = None, None
    try:
        result = work()
    except Exception as raised:
        error = raised
    told = comm.share(None if error is None else (type(error), str(error), sentence_of(comm.rank, error)))
    failed = [failure for failure in told if failure is not None]
    if not failed:
        return result  # type: ignore[return-value]
    kind, words, sentence = failed[0]
    if (
        len(failed) == comm.size
        and issubclass(kind, GraphOptError)
        and len({failure[1] for failure in failed}) == 1
    ):
        raise agreed(kind(words)) from error
    raise agreed(RankError(sentence)) from error
