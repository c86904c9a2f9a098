"""`compute_marginals`: blocks of the inverse of H, by Hessian index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError
from graphopt.g2o.elements.base import native
from graphopt.g2o.engine.sparse_block_matrix import SparseBlockMatrixX
from graphopt.linear import SparseCholesky


def compute_marginals(optimizer: Any, arguments: Sequence[Any]) -> tuple[SparseBlockMatrixX, bool]:
    """See `SparseOptimizer.compute_marginals`."""
    target = None
    if arguments and isinstance(arguments[0], SparseBlockMatrixX):
        target, arguments = arguments[0], arguments[1:]
    if len(arguments) != 1:
        raise OptionError(
            "compute_marginals takes a vertex, a sequence of vertices, or a sequence of index pairs."
        )
    mapping = native(optimizer).index_mapping(optimizer)
    if hasattr(arguments[0], "hessian_index") and arguments[0].hessian_index() < 0:
        return SparseBlockMatrixX() if target is None else target, False  # as g2o says of a fixed vertex
    pairs = _pairs(optimizer, arguments[0])
    solver = optimizer._with_blocks(optimizer.block_solver())
    structure = solver.structure
    problem = optimizer._active_problem("compute_marginals")
    block = [structure.block_of(*problem.place_of(vertex)) for vertex in mapping]
    solver.linearize()
    ends = np.cumsum([vertex.dimension() for vertex in mapping]).tolist()
    result = target if target is not None else SparseBlockMatrixX()
    result._row_ends, result._col_ends = list(ends), list(ends)
    cholesky = SparseCholesky(structure.pattern)
    if not cholesky.factorize(solver.values):
        return result, False
    requested = np.array([(block[i], block[j]) for i, j in pairs], np.int32).reshape(-1, 2)
    for (i, j), covariance in zip(pairs, cholesky.marginals(requested), strict=True):
        result._set(i, j, np.array(covariance))
    return result, True


def _pairs(optimizer: Any, given: Any) -> list[tuple[int, int]]:
    """Hessian index pairs, upper triangle."""
    items = [given] if hasattr(given, "hessian_index") else list(given)
    pairs = []
    for each_item in items:
        if hasattr(each_item, "hessian_index"):
            pairs.append((each_item.hessian_index(),) * 2)
        elif np.ndim(each_item) == 0:
            pairs.append((int(each_item), int(each_item)))
        else:
            i, j = (
                item.hessian_index() if hasattr(item, "hessian_index") else int(item) for item in each_item
            )
            pairs.append((min(i, j), max(i, j)))
    if any(i < 0 for i, _ in pairs):
        raise GraphError("compute_marginals: a vertex is fixed or not active, it has no covariance.")
    return pairs
