"""The estimates of a block solver as a whole, to come back to later.

`push` and `pop` are a stack; this is for a place that is gone to from anywhere, any number of times. On the
CPU the numbers are those that the steps are taken in. Elsewhere they go through the graph: where a vertex
type has a working form (`types.base.WorkingForm`), coming back differs by the rounding of its storage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.cpu import HostEquations


def present_places(solver: Any) -> list[np.ndarray]:
    """Copies of all estimates; `solver` is a `BlockSolver` or has one as `inner`."""
    inner = getattr(solver, "inner", solver)
    if isinstance(inner, HostEquations):
        return inner.snapshot()
    solver.finish()
    return [vertex_set.estimate.copy() for vertex_set in solver.structure.selection.vertex_sets]


def go_to(solver: Any, places: list[np.ndarray]) -> None:
    """Set the estimates to what `present_places` gave; the stack of `push` stays."""
    inner = getattr(solver, "inner", solver)
    if isinstance(inner, HostEquations):
        inner.restore(places)
        return
    for vertex_set, estimate in zip(solver.structure.selection.vertex_sets, places, strict=True):
        vertex_set.estimate[:] = estimate
    solver.refresh()
