"""The Vulkan block solver: linearisation, Schur complement, conjugate gradients on any GPU with a driver.

The devices "vulkan" ("vulkan:1", "vulkan:radeon") and "kompute", the same solver over the package
kp. Nothing native is imported until one is asked for.
"""

from __future__ import annotations

from graphopt.graph import Graph
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.devices import Device
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure


def _create(graph: Graph, structure: Structure, options: SolverOptions) -> BlockSolver:
    from graphopt.solver.vulkan.solver import create

    return create(graph, structure, options)


DEVICE = Device(_create, has_small_blocks=True)
