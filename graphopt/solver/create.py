"""From options to the block solver that they stand for."""

from __future__ import annotations

from dataclasses import replace

from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.added import with_outside_edges
from graphopt.solver.auto_device import choose_device, create_or_stay
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.devices import device_row


def create_block_solver(graph: Graph, structure: Structure, options: SolverOptions) -> BlockSolver:
    """The block solver of `options.device`; what "auto" is says `auto_device`."""
    if options.device == "auto":
        return create_or_stay(
            lambda device: create_block_solver(graph, structure, replace(options, device=device)),
            choose_device(structure, options),
        )
    return with_outside_edges(device_row(options.device).make(graph, structure, options), graph)
