"""Choose where to start: at the given estimates, or at those of a convex relaxation if chi2 is lower there."""

from __future__ import annotations

import time

import numpy as np

from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.relaxation import relaxed_estimates


def take_better_start(graph: Graph, solver: BlockSolver, threshold: float, summary: Summary) -> None:
    """Move the graph to the relaxation's estimates if that lowers chi2; notes it in the summary.

    Tried only where chi2 per residual is above `threshold`: near a minimum it would be wasted time.
    """
    start = time.perf_counter()
    given = solver.chi2()
    summary.initial_chi2 = given
    num_residuals = sum(len(group.rows) * group.edge_set.type.residual_dim for group in solver.structure.groups)
    if not np.isfinite(given) or given <= threshold * num_residuals:
        return
    relaxed = relaxed_estimates(solver.structure)
    if relaxed is not None:
        before = [one.estimate.copy() for one in graph.vertex_sets]
        _write(graph, relaxed, solver)
        chi2 = solver.chi2()
        if np.isfinite(chi2) and chi2 < given:
            summary.message = f"Started from a convex relaxation, where chi2 is {chi2:.6g} instead of {given:.6g}."
        else:
            _write(graph, before, solver)
    summary.seconds["prepare"] += time.perf_counter() - start


def _write(graph: Graph, estimates: list[np.ndarray], solver: BlockSolver) -> None:
    for one, estimate in zip(graph.vertex_sets, estimates, strict=True):
        one.estimate = estimate
    solver.refresh()
