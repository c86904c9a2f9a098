"""The Vulkan block solver: linearisation, Schur complement, conjugate gradients on any GPU with a driver.

The devices "vulkan" ("vulkan:1", "vulkan:radeon") and "kompute", the same solver over the package
kp. Nothing native is imported until one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphopt.errors import OptionError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.pattern import BlockPattern
from graphopt.problem.structure import Structure
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.devices import Device

if TYPE_CHECKING:
    import numpy as np

    from graphopt.vulkan.cholesky import DeviceCholesky


def _create(graph: Graph, structure: Structure, options: SolverOptions) -> BlockSolver:
    from graphopt.vulkan.solver import create

    return create(graph, structure, options)


def _cholesky(pattern: BlockPattern, device: str) -> DeviceCholesky:
    """Of float64; "vulkan:radeon" names the device."""
    from graphopt.device.shared import shared_device
    from graphopt.vulkan.cholesky import DeviceCholesky

    opened = shared_device(device.partition(":")[2] or None)
    if not opened.has_float64:
        raise OptionError(f"{opened.name} has no float64, which covariances need. Use device='cpu'.")
    return DeviceCholesky(opened, pattern)


def _factor_of_edges(
    graph: Graph, structure: Structure, device: str, damping: float, **options: Any
) -> tuple[DeviceCholesky, np.ndarray] | None:
    from graphopt.vulkan.covariances import factor_of_edges

    return factor_of_edges(graph, structure, device, damping, **options)


DEVICE = Device(_create, _cholesky, _factor_of_edges, has_small_blocks=True)
KOMPUTE = Device(_create, has_small_blocks=True)
