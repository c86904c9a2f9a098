"""The table of devices that optimize: name -> what makes their block solver, and its limits.

"vulkan:1" is looked up as "vulkan"; the factory reads the rest from the options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphopt import option_names
from graphopt.errors import DeviceError, OptionError
from graphopt.graph import Graph
from graphopt.plugins import Table
from graphopt.problem.pattern import BlockPattern
from graphopt.problem.structure import Structure
from graphopt.solver.block_solver import BlockSolver

if TYPE_CHECKING:
    from graphopt.linear.options import SolverOptions

Factory = Callable[[Graph, Structure, "SolverOptions"], BlockSolver]


@dataclass(frozen=True)
class Device:
    """A row."""

    make: Factory
    """(graph, structure, options) -> block solver."""
    cholesky: Callable[[BlockPattern, str], Any] | None = None
    """(pattern, device) -> a solver with `factorize`, `solve` and `marginals` there; None: there is none."""
    factor_of_edges: Callable[..., tuple[Any, Any] | None] | None = None
    """(graph, structure, device, damping, eliminates=, on=) -> such a solver for H + damping diag(H), or for
    its Schur complement, from edges evaluated there, with H's diagonal; on: scalars that are damped, None:
    all. None, also returned: the host forms H."""
    has_small_blocks: bool = False
    """It holds blocks of `problem.small_blocks.LARGEST_BLOCK` rows at most: larger vertices are divided."""


DEVICES = Table("graphopt.devices", "device", option_names.DEVICES, Device)


def device_row(device: str) -> Device:
    """The row of "vulkan:1"; `DeviceError` with the names that there are."""
    try:
        return DEVICES[device.partition(":")[0]]
    except KeyError:
        raise DeviceError(
            f"There is no device '{device}' here; this installation can optimize on: "
            f"{', '.join(DEVICES.names())}. GPUs of all makers are vulkan, vulkan:1, ..."
        ) from None


def register_block_solver(device: str, factory: Factory, *, has_small_blocks: bool = False) -> None:
    """Let `device=name` (or "name:more") optimize with `factory(graph, structure, options)`.

    It returns a `solver.block_solver.BlockSolver`. has_small_blocks: see `Device`. A package offers one by an
    entry point of the group "graphopt.devices", whose object is a `Device`. Raises `OptionError` for a name
    that is taken, or no function.
    """
    if not callable(factory):
        raise OptionError(f"device '{device}': factory is {factory!r}, expected a function.")
    DEVICES.register(device, Device(factory, has_small_blocks=has_small_blocks))
