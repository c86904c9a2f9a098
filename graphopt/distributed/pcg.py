"""Conjugate gradients on the reduced system, which no rank ever has.

    S x = b_s,   S p = D_p p + sum_r S_r p

With block-Jacobi, the form of Chronopoulos and Gear (1989), in which the two scalar products of an iteration
belong to the vector that is summed anyway: one all-reduce per iteration is all that ranks say to each other.
The loop is native (`linear/conjugate_gradients.h`); what each rank does: `iterating`.

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


class _Vectors:
    """Those of all ranks (`kernels.conjugate_gradients`): each number is a sum over the ranks."""

    def __init__(self, comm: Communicator, own: Iterating, message: np.ndarray):
        self._sum, self._own, self._message = comm.sum, own, message
        self._alpha = self._beta = 0.0

    def start(self) -> float:
        self._total = total = self._sum(self._message)
        self._residual, self._products = float(total[-TAIL] + total[-4]), float(total[-3] + total[-2])
        if total[-1]:
            self._residual = np.nan
        return self._residual

    def curvature(self, beta: float) -> float:
        self._beta = beta
        return kernels.merged_curvature(self._products, self._residual, self._alpha, beta)

    def step(self, alpha: float) -> float:
        self._alpha = alpha
        self._message = self._own.advance(self._total, alpha, self._beta)
        return self.start()


def iterate(comm: Communicator, own: Iterating, total: np.ndarray, rule: StopRule) -> int | None:
    """Solve S x = b_s; the iterations it took, None: S is not definite. Collective.

    total: the sum over the ranks of what `own.reduce` gave.
    """
    return _definite(*kernels.conjugate_gradients(_Vectors(comm, own, own.start(total)), *astuple(rule)))


def _definite(iterations: int, residual: float, is_positive: bool) -> int | None:
    """Rounding of the merged products may end it later; x is then that of the iteration before."""
    return iterations if np.isfinite(residual) and (is_positive or iterations) else None


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
        *outcome, seconds = comm.rank_barrier(each.runtime).iterate(
            comm.rank, each.programs, *buffers, *astuple(rule), each.timeout
        )
    except each.runtime.BarrierBroken as error:
        raise threading.BrokenBarrierError from error
    comm.seconds += seconds
    return _definite(*outcome)
