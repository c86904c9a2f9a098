"""Where the sum of all reduced matrices is factorized: on the GPU of one rank, or on every rank's CPU.

Cores of all ranks get the same bits from the same numbers, so each factorizes for itself. GPUs of two kinds
may not: the first rank whose device takes the matrix factorizes and solves there, and one sum hands a vector
of pose scalars to all. As on one device, who asks for Cholesky on a device gets it there, and `auto` takes
the faster of both. A device without float64, or a software driver under `auto`, leaves it to the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.part import HostPart
from graphopt.linear import LINEAR_SOLVERS, BlockPattern
from graphopt.linear.systems import Solver


def device_factor(
    comm: Communicator, part: HostPart, pattern: BlockPattern, name: str, is_chosen: bool
) -> SpokenFactor | None:
    """Factors on the first device that takes them; None: the CPU is to do it. Collective.

    name: of the table of linear solvers. is_chosen: `auto` took it, and may as well take the CPU. Raises
    `RankError`, on all ranks, where a device that is asked for is too small.
    """
    if LINEAR_SOLVERS[name].ordering is None:
        return None
    offers = comm.share(_offers(part, is_chosen))
    if not any(offers):
        return None
    speaks = comm.rank == offers.index(True)
    solver = together(comm, lambda: _made(part.solver.device, pattern, name, is_chosen) if speaks else None)
    if not any(comm.share(solver is not None)):
        return None
    return SpokenFactor(comm, solver, pattern.dim)


def _offers(part: HostPart, is_chosen: bool) -> bool:
    """Whether this rank has a device that may take it."""
    device = getattr(part.solver, "device", None)
    if device is None or not (device.submits_whole_programs and device.has_float64):
        return False
    return not (is_chosen and device.info.get("kind") == "cpu")


def _made(device: Any, pattern: BlockPattern, name: str, is_chosen: bool) -> Any:
    """`DeviceCholesky`; None: `auto` has a faster CPU."""
    from graphopt.vulkan.cholesky import DeviceCholesky, is_faster_from_host
    from graphopt.vulkan.cholesky.analysis import analyse_once

    ordering = LINEAR_SOLVERS[name].ordering
    assert ordering is not None
    analysis = analyse_once(pattern, ordering)
    if is_chosen and not is_faster_from_host(device, analysis):
        return None
    return DeviceCholesky(device, pattern, "double", analysis=analysis)


class CpuFactor:
    """Every rank for itself."""

    place = "cpu"

    def __init__(self, solver: Solver):
        self._solver = solver

    def solve(self, values: np.ndarray, damping: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """x (dim,), the same on all ranks; None: not positive definite."""
        if not self._solver.factorize(values, damping):
            return None
        return np.asarray(self._solver.solve(np.ascontiguousarray(b)))

    @property
    def memory_bytes(self) -> int:
        """Of the factor."""
        return int(getattr(self._solver, "memory_bytes", 0))


class SpokenFactor:
    """One rank's device for all; every call is collective."""

    place = "device"

    def __init__(self, comm: Communicator, solver: Any, dim: int):
        """solver: None on the ranks that only listen."""
        self._comm, self._solver, self._dim = comm, solver, dim

    def solve(self, values: np.ndarray, damping: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """x (dim,), the same on all ranks; None: not positive definite."""
        total = self._comm.sum(self._spoken(values, damping, b))
        return None if total[-1] else total[:-1]

    def _spoken(self, values: np.ndarray, damping: np.ndarray, b: np.ndarray) -> np.ndarray:
        told = np.zeros(self._dim + 1)
        if self._solver is None:
            return told
        told[-1] = not self._solver.factorize(values, damping)
        if not told[-1]:
            told[:-1] = self._solver.solve(np.ascontiguousarray(b))
        return told

    @property
    def memory_bytes(self) -> int:
        """Of this rank's factor."""
        return 0 if self._solver is None else int(self._solver.memory_bytes)
