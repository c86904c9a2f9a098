"""The block solver of a Vulkan device: which one, by the schedule."""

from __future__ import annotations

from dataclasses import replace

from graphopt.device import VulkanDevice, open_device
from graphopt.device.kompute import KomputeDevice
from graphopt.graph import Graph
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.block_solver import VulkanBlockSolver
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.resident import ResidentBlockSolver
from graphopt.solver.vulkan.schedule import check_schur, choose_plan, choose_precision, configuration_of

FACTORIZED_IN_DOUBLE = (
    "Computed in double: the CPU factorizes the whole H in float64, so float32 would only round it before."
)


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
    note = ""
    if precision == "mixed" and device.has_float64 and not plan.uses_float32:
        precision, note = "double", FACTORIZED_IN_DOUBLE
    if plan.schedule == "host":
        options = replace(options, precision=precision)
        solver = VulkanBlockSolver(graph, structure, options, device=device, configuration=plan.configuration)
    else:
        solver = ResidentBlockSolver(
            graph.parameter_sets,
            structure,
            device,
            plan.configuration,
            precision,
            plan.products,
            plan.merged,
            evaluations=plan.evaluations,
        )
    solver.precision_note = note
    return solver
