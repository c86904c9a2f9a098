"""Which device optimizers of the drop-in use: the CPU, unless a program or the environment says otherwise."""

from __future__ import annotations

import os
from functools import cache

from graphopt.linear.options import SolverOptions

ENVIRONMENT_VARIABLE = "GRAPHOPT_G2O_DEVICE"
"""Device for programs that cannot be changed, such as "vulkan"."""

_device: str | None = None


def set_default_device(device: str) -> None:
    """Let all optimizers use a device ("cpu", "vulkan", "vulkan:1", ...) from their next `optimize` on.

    Edges and vertices that are defined in Python are evaluated on the CPU, and their part is added to the
    rest, which runs on the device. Where there are no other edges, or plane-to-plane GICP edges (whose
    information follows from the estimates), the CPU linearises and the device solves the linear systems.
    """
    global _device
    _device = device


def default_device() -> str:
    """The device that `optimize` uses."""
    return _device or os.environ.get(ENVIRONMENT_VARIABLE) or "cpu"


def solver_options(linear_solver: str, on_host: bool) -> SolverOptions:
    """Options of a block solver on this device; `on_host`: the CPU linearises."""
    return _options(default_device(), linear_solver, "host" if on_host else "auto")


@cache
def _options(device: str, linear_solver: str, schedule: str) -> SolverOptions:
    return SolverOptions(device=device, linear_solver=linear_solver, schedule=schedule)
