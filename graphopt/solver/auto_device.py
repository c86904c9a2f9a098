"""What device "auto" stands for: the CPU, but a GPU for what only a GPU does and for large bundle adjustment.

With landmarks to eliminate, an iteration is linear in the edges and a discrete GPU does it 20 to 100 times
faster than a few cores, but opening it, kernels and uploads take some tenths of a second. Pose graphs stay on
the CPU: they are factorized there in any case.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from graphopt.errors import DeviceError
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
    if structure.num_edges < LARGE or not structure.has_schur or options.schur == "off":
        return "cpu"
    if options.linear_solver in ("cholesky", "dense"):
        return "cpu"
    index = _discrete_gpu()
    return "cpu" if index is None else f"vulkan:{index}"


def create_or_stay(create: Callable[[str], BlockSolver], device: str) -> BlockSolver:
    """`create(device)`; where a GPU that nobody asked for fails, a warning that says why, and the CPU."""
    if not device.startswith("vulkan:"):
        return create(device)
    try:
        return create(device)
    except DeviceError as error:
        warnings.warn(f"{error} Solving on the CPU instead.", RuntimeWarning, stacklevel=2)
        return create("cpu")


@cache
def _discrete_gpu() -> int | None:
    """Index of the first discrete GPU that computes in float64; looked for once per process."""
    from graphopt.device import list_devices

    try:
        devices = list_devices()
    except DeviceError:
        return None
    return next((one.index for one in devices if one.kind == "discrete" and one.features["float64"]), None)
