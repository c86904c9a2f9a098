"""What a block solver can do beside `BlockSolver`: asked of a value that it carries, never of its class.

A solver says so by an attribute `capabilities`; one without has none of them. What needs a capability has
another way where it is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.linear.systems import LinearSystem
from graphopt.switches import is_off


@dataclass(frozen=True)
class Capabilities:
    """Names of methods and attributes of `solver`, where it has what stands here."""

    snapshot: bool = False
    """Estimates are on the host, in the form that steps are taken in: `snapshot()`, `restore(estimates)`, and
    `take_all_estimates()` from the graph."""
    narrow: bool = False
    """`choose_edges(masks)`: only some edges of each group take part, in the structure of all."""
    begins_linearized: bool = False
    """`begin()`: chi2 before the first iteration, with H and b for the `linearize` that follows."""
    linearizes_trials: bool = False
    """`linearizes_trials` may be set: `chi2` finds H and b as well, for a `linearize` that follows."""
    speculates: bool = False
    """`begin(looks)`, `begin_trial(first_damping)`, `forget_begun()`: it starts while the host looks whether
    anything but estimates has changed (`solver.reuse`)."""
    native_loop: bool = False
    """`native_loop(with_product)`: a `kernels.SmallLoop` over its arrays, None where Python iterates."""
    linear_system: bool = False
    """`linear_system` (`linear.systems.LinearSystem`): counts of its solves; `timing_parts(seconds)`."""
    keeps_bounds: bool = False
    """Its steps stay within bounds of estimates (`solver.bounded`)."""
    rebinds: bool = False
    """`rebind(graph)`: it goes on with the numbers of another graph, after `Structure.rebind`."""
    second_order: bool = False
    """`in_second_order()`: the solver whose H is the Hessian of chi2 / 2, None where that cannot be."""
    may_move: bool = False
    """Device "auto" may give its structure to a GPU for further calls."""


_NONE = Capabilities()


def capabilities_of(solver: Any) -> Capabilities:
    """What a block solver can do."""
    return getattr(solver, "capabilities", _NONE)


def factor_flops_of(solver: Any) -> float:
    """Operations of one factorization of H as a whole; 0: none, or not known."""
    system = linear_system_of(solver)
    return system.counts.flops if system is not None and system.schur == "off" else 0.0


def linear_system_of(solver: Any) -> LinearSystem | None:
    """What solves for a step on the host, None: a device does, or nobody says."""
    return solver.linear_system if capabilities_of(solver).linear_system else None


def native_loop_of(solver: Any, with_product: bool) -> Any:
    """The native loop over a block solver's arrays, None: it is driven from Python.

    with_product: the algorithm multiplies by H.
    """
    has_loop = capabilities_of(solver).native_loop and not is_off("native_loop")
    return solver.native_loop(with_product) if has_loop else None


def snapshot(solver: Any) -> list[np.ndarray]:
    """Copies of all estimates, to come back to any number of times; the stack of `push` is another.

    Where the solver has no snapshots they go through the graph: of a vertex type with a working form
    (`types.base.WorkingForm`) coming back then differs by the rounding of its storage.
    """
    if capabilities_of(solver).snapshot:
        return solver.snapshot()
    solver.finish()
    return [vertex_set.estimate.copy() for vertex_set in solver.structure.selection.vertex_sets]


def restore(solver: Any, estimates: list[np.ndarray]) -> None:
    """Set the estimates to what `snapshot` gave; the stack of `push` stays."""
    if capabilities_of(solver).snapshot:
        solver.restore(estimates)
        return
    for vertex_set, estimate in zip(solver.structure.selection.vertex_sets, estimates, strict=True):
        vertex_set.estimate[:] = estimate
    solver.refresh()
