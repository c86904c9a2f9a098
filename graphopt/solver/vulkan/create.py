"""The block solver of a Vulkan device: which one, by the schedule."""

from __future__ import annotations

from graphopt.device import VulkanDevice, open_device
from graphopt.device.kompute import KomputeDevice
from graphopt.graph import Graph
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.block_solver import VulkanBlockSolver
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.layout import diagonal_layout, whole_layout
from graphopt.solver.vulkan.resident import ResidentBlockSolver
from graphopt.solver.vulkan.schedule import check_schur, choose_precision, choose_schedule, configuration_of


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
    eliminate = structure.has_schur and configuration.schur != "off"
    num_kept = structure.num_kept if eliminate else structure.num_blocks
    # Only "auto" looks at H's pattern, which takes seconds to find for tens of millions of edges.
    layout = (
        whole_layout(structure, num_kept)
        if configuration.schur == "auto"
        else diagonal_layout(structure, num_kept)
    )
    resolved = configuration.resolve(layout)
    schedule = choose_schedule(options.schedule, device, structure, resolved)
    if schedule == "host":
        return VulkanBlockSolver(graph, structure, options, device=device, configuration=resolved)
    return ResidentBlockSolver(graph, structure, device, resolved, precision, schedule)
