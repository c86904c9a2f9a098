"""What device "auto" stands for: the CPU, but a GPU for what only a GPU does and for large graphs.

With landmarks to eliminate, an iteration is linear in the edges and a discrete GPU does it 20 to 100 times
faster than a few cores. Large pose graphs are factorized there, up to ten times faster than on 16 cores
where they fill space or a plane (`benchmarks/device_cholesky.py`), and about as fast along a random walk. But
opening the device, kernels and uploads take some tenths of a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from graphopt.errors import DeviceError
from graphopt.pyglslang import ShaderError
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.structure import Structure

if TYPE_CHECKING:
    from graphopt.solver.registry import SolverOptions

LARGE = 200_000
"""Edges from which on a GPU pays."""


def choose_device(structure: Structure, options: SolverOptions) -> str:
    """The device: "cpu", "vulkan" where the options need a GPU, or "vulkan:N" for a large problem."""
    if options.schedule not in ("auto", "host") or options.precision == "mixed":
        return "vulkan"
    if structure.num_edges < LARGE or (structure.has_schur and options.schur == "off"):
        return "cpu"
    if options.linear_solver in ("cholesky", "dense"):
        return "cpu"
    index = _discrete_gpu()
    return "cpu" if index is None else f"vulkan:{index}"


FAILURES = (DeviceError, ShaderError)
"""How a GPU says no: no memory, no kernel, no device any more."""


def may_stay(options: SolverOptions) -> bool:
    """Nobody asked for a GPU, so that the CPU may go on where one fails."""
    return options.device == "auto" and options.schedule in ("auto", "host") and options.precision != "mixed"


def say_why(error: Exception) -> None:
    """Warn that a GPU has failed."""
    warnings.warn(f"{error} Solving on the CPU instead.", RuntimeWarning, stacklevel=3)


def create_or_stay(create: Callable[[str], BlockSolver], device: str) -> BlockSolver:
    """`create(device)`; where a GPU that nobody asked for fails, a warning that says why, and the CPU.

    Much of a solver is set up beside its first steps: `optimize` goes on likewise where it fails later.
    """
    if not device.startswith("vulkan:"):
        return create(device)
    try:
        return create(device)
    except FAILURES as error:
        say_why(error)
        return create("cpu")


def open_ahead(device: str) -> None:
    """Let the driver of a GPU that was asked for start while the host prepares the problem."""
    kind, _, which = device.partition(":")
    if kind == "vulkan":
        from graphopt.device import shared

        shared.open_ahead(which or None)


@cache
def _discrete_gpu() -> int | None:
    """Index of the first discrete GPU that computes in float64; looked for once per process."""
    from graphopt.device import list_devices

    try:
        devices = list_devices()
    except DeviceError:
        return None
    return next((one.index for one in devices if one.kind == "discrete" and one.features["float64"]), None)
