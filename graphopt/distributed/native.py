"""Iterations of ranks that are threads with a device each, without Python between them.

What `pcg.iterate` does, number for number, in native code: the message of the device is read where it
arrives, added to those of the other ranks, and the next submission started, while no thread waits for
another one's Python. Ranks of MPI, and those with one on a CPU, iterate in Python.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator, ThreadCommunicator
from graphopt.distributed.iterating import Iterating
from graphopt.distributed.pcg import StopRule


@dataclass(frozen=True)
class Submissions:
    """An iteration of one rank's device."""

    runtime: Any
    """The native module."""
    programs: list[list[Any]]
    """Of iteration 0, 1, ..., which repeat; of each in their order."""
    message: Any
    """Mapped buffer that they leave the message in."""
    total: Any
    """Mapped buffer that they take the sums, alpha and beta from."""
    rows: int
    """Of the message that go through the host."""
    is_double: bool
    timeout: float
    """Seconds."""


def iterates_natively(comm: Communicator, own: Iterating) -> bool:
    """All ranks are threads with a device each. Collective."""
    is_ready = isinstance(comm, ThreadCommunicator) and hasattr(own, "submissions")
    return all(comm.share(is_ready))


def iterate_natively(comm: Any, own: Any, total: np.ndarray, rule: StopRule) -> int | None:
    """`pcg.iterate`. Collective."""
    own.start(total)
    submissions: Submissions = own.submissions()
    meeting = comm.meeting(submissions.runtime)
    try:
        iterations, is_definite, seconds = meeting.iterate(
            comm.rank,
            submissions.programs,
            submissions.message,
            submissions.total,
            submissions.rows,
            submissions.is_double,
            rule.tolerance,
            rule.most,
            rule.share,
            rule.worth,
            rule.patience,
            submissions.timeout,
        )
    except submissions.runtime.MeetingBroken as error:
        raise threading.BrokenBarrierError from error
    comm.seconds += seconds
    return iterations if is_definite else None
