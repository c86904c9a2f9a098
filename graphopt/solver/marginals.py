"""Marginal covariances: chosen blocks of inv(H) at the present estimates.

    Cov(x_i, x_j) = [inv(H)]_ij,   H = sum J' w Omega J        in the tangent spaces of the vertices

H is singular while the graph can move as a whole: fix a vertex or add a prior first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.errors import GraphError, SolverError
from graphopt.graph import Graph, Vertex
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.held import without_held
from graphopt.solver.linear import SparseCholesky
from graphopt.solver.linear_systems import block_pattern
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure

Pair = tuple[int, int]


def compute_marginals(graph: Graph, pairs: Iterable[Any], *, level: int = 0) -> dict[Pair, np.ndarray]:
    """Covariance blocks of pairs of vertices: {(id_i, id_j): (tangent_dim_i, tangent_dim_j)}.

    Of vertices that hold components (`Graph.hold`) the blocks have the others only. `pairs` holds (id, id)
    pairs, or single ids (or `Vertex` objects) for a vertex with itself. Raises `GraphError` for a vertex
    that is fixed or has no active edge, `SolverError` if H is singular.
    """
    wanted = [_pair(one) for one in pairs]
    problem = without_held(graph, graph.select(level))
    graph = problem.graph
    structure = Structure(problem.selection)
    solver = CpuBlockSolver(graph, structure, SolverOptions())
    solver.linearize()
    blocks = np.array([[_block(graph, structure, one) for one in pair] for pair in wanted], np.int32).reshape(
        -1, 2
    )
    cholesky = SparseCholesky(block_pattern(structure))
    if not cholesky.factorize(solver.values):
        bad = int(structure.ids[cholesky.failed_block])
        raise SolverError(
            f"H is singular (found at vertex {bad}), so there are no covariances. "
            "Fix a vertex of each connected part, or add a prior."
        )
    return dict(zip(wanted, cholesky.marginals(blocks), strict=True))


def _pair(one: Any) -> Pair:
    if isinstance(one, (int, np.integer, Vertex)):
        one = (one, one)
    first, second = (item.id if isinstance(item, Vertex) else int(item) for item in one)
    return first, second


def _block(graph: Graph, structure: Structure, vertex_id: int) -> int:
    block = structure.block_of(*graph.vertex_place(vertex_id))
    if block < 0:
        raise GraphError(f"Vertex {vertex_id} is fixed or has no active edge: it has no covariance.")
    return block
