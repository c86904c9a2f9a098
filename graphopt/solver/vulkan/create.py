"""The block solver of a Vulkan device: which one, by the schedule."""

from __future__ import annotations

from graphopt.device import VulkanDevice, open_device
from graphopt.device.kompute import KomputeDevice
from graphopt.graph import Graph
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.block_solver import VulkanBlockSolver
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.resident import ResidentBlockSolver
from graphopt.solver.vulkan.schedule import check_schur, choose_plan, choose_precision, configuration_of


def create(
    graph: Graph,
    structure: Structure,
    options: SolverOptions,
    *,
    device: VulkanDevice | KomputeDevice | None = None,
    configuration: Configuration | None = None,
) -> VulkanBlockSolver | ResidentBlockSolver:
    """The block solver for `options`.

    device: an open one, None: that of `options.device`. configuration: instead of what `options` say about
    the linear solver.
    """
    device = device or open_device(options.device)
    precision = choose_precision(device, options.precision)
    configuration = configuration or configuration_of(options, precision)
    check_schur(configuration, structure)
    plan = choose_plan(options.schedule, device, structure, configuration, precision)
    if plan.schedule == "host":
        return VulkanBlockSolver(graph, structure, options, device=device, configuration=plan.configuration)
    return ResidentBlockSolver(graph, structure, device, plan.configuration, precision, plan.products)
