"""Conjugate gradients on the reduced system, which no rank ever has.

    S x = b_s,   S p = D_p p + sum_r S_r p

With block-Jacobi, the form of Chronopoulos and Gear (1989), in which the two scalar products of an iteration
belong to the vector that is summed anyway: one all-reduce per iteration is all that ranks say to each other.
Scalars and the stop rule are native (`linear/conjugate_steps.h`); what each rank does: `iterating`.

Ranks that are threads with a device each iterate in native code as a whole: the message of the device is read
where it arrives, added to those of the others, and the next submission started, while no thread waits for
another one's Python. Ranks of MPI, and those with one on a CPU, do the same from here.
"""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.distributed.communicator import Communicator, ThreadCommunicator
from graphopt.distributed.protocol import TAIL, Iterating


@dataclass(frozen=True)
class StopRule:
    """When to stop."""

    tolerance: float
    """Of r' inv(M) r, relative to its start."""
    most: int
    """Iterations."""
    share: float = 0.0
    """Of the gain of the quadratic model, what may be left, ..."""
    worth: float = 0.0
    """... or so much of it, ..."""
    patience: int = 0
    """... once so many iterations have run (`kernels.patience_after`)."""


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


def iterate(comm: Communicator, own: Iterating, total: np.ndarray, rule: StopRule) -> int | None:
    """Solve S x = b_s; the iterations it took, None: S is not definite. Collective.

    total: the sum over the ranks of what `own.reduce` gave.
    """
    message, steps = own.start(total), kernels.ConjugateSteps(*astuple(rule))
    while True:
        total = comm.sum(message)
        if not steps.take(total[-TAIL] + total[-4], total[-3] + total[-2], total[-1] != 0.0):
            return steps.iterations if steps.is_definite else None
        message = own.advance(total, steps.alpha, steps.beta)


def iterates_natively(comm: Communicator, own: Iterating) -> bool:
    """All ranks are threads with a device each. Collective."""
    is_ready = isinstance(comm, ThreadCommunicator) and hasattr(own, "submissions")
    return all(comm.share(is_ready))


def iterate_natively(comm: Any, own: Any, total: np.ndarray, rule: StopRule) -> int | None:
    """`iterate`, without Python between submissions. Collective."""
    own.start(total)
    each: Submissions = own.submissions()
    buffers = each.message, each.total, each.rows, each.is_double
    try:
        iterations, is_definite, seconds = comm.meeting(each.runtime).iterate(
            comm.rank, each.programs, *buffers, *astuple(rule), each.timeout
        )
    except each.runtime.MeetingBroken as error:
        raise threading.BrokenBarrierError from error
    comm.seconds += seconds
    return iterations if is_definite else None
