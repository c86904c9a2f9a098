"""Karush-Kuhn-Tucker conditions at the end of an optimization with bounds or inequalities.

    grad chi2(x) = sum z_k grad c_k(x),    c_k(x) >= 0,    z_k >= 0,    z_k c_k(x) = 0

c_k are the inequalities and, of bounds, x - lower and upper - x. A multiplier z_k says by how much chi2 would
fall per unit by which its constraint gave way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphopt.problem.rewrite import Rewrite
from graphopt.solver.bounded import BoundedSolver


class ActiveBound(NamedTuple):
    """A component at its bound."""

    vertex: int
    """Id."""
    component: int
    """Of the estimate."""
    side: str
    """"lower" or "upper"."""
    value: float
    """The bound."""
    multiplier: float


class ActiveInequality(NamedTuple):
    """A number of an inequality edge that would be negative otherwise."""

    tag: str
    """Of the edge set."""
    row: int
    component: int
    """Of what the edge's function returns."""
    value: float
    multiplier: float


@dataclass(frozen=True)
class KktConditions:
    """How well the conditions hold, and which constraints are active."""

    stationarity: float
    """Largest entry of grad chi2 - sum z_k grad c_k, by the components of updates."""
    scaled_stationarity: float
    """The same without units: entry j divided by 2 sqrt(H_jj chi2), a cosine; 0 where chi2 is."""
    violation: float = 0.0
    """Largest violation of an inequality; bounds are never violated."""
    complementarity: float = 0.0
    """Largest z_k |c_k| of the inequalities; of bounds it is 0."""
    bounds: tuple[ActiveBound, ...] = ()
    inequalities: tuple[ActiveInequality, ...] = ()

    def line(self) -> str:
        """For reports."""
        return (
            f"active: {len(self.bounds)} bounds, {len(self.inequalities)} inequalities; stationarity "
            f"{self.stationarity:.2e} (scaled {self.scaled_stationarity:.2e}), violation "
            f"{self.violation:.2e}, complementarity {self.complementarity:.2e}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stationarity": self.stationarity,
            "scaled_stationarity": self.scaled_stationarity,
            "violation": self.violation,
            "complementarity": self.complementarity,
            "bounds": [each._asdict() for each in self.bounds],
            "inequalities": [each._asdict() for each in self.inequalities],
        }


def kkt_of(solver: Any, problem: Rewrite) -> KktConditions:
    """At the solver's present estimates, which it linearizes at once more."""
    chi2 = solver.linearize()
    b, diagonal = np.abs(solver.b), solver.diagonal
    scale = np.sqrt(np.maximum(diagonal, 0.0) * max(chi2, 0.0))
    scaled = np.divide(b, scale, out=np.zeros_like(b), where=scale > 0.0)
    found: tuple[ActiveBound, ...] = ()
    if isinstance(solver, BoundedSolver):
        found = _active_bounds(solver, problem)
    return KktConditions(2.0 * float(b.max(initial=0.0)), float(scaled.max(initial=0.0)), bounds=found)


def _active_bounds(solver: BoundedSolver, problem: Rewrite) -> tuple[ActiveBound, ...]:
    at, found = 0, []
    for each in solver.bounded:
        here = slice(at, at + len(each.rows))
        at += len(each.rows)
        active, pushed = solver.active[here], solver.push_out[here]
        vertex_set, rows, places = problem.origin(
            solver.structure.selection.vertex_sets[each.number], each.rows[active], each.places[active]
        )
        ids = vertex_set.look("ids")[rows]
        sides = np.where(pushed[active] < 0.0, "lower", "upper")
        values = np.where(pushed[active] < 0.0, each.lower[active], each.upper[active])
        columns = (ids, places, sides, values, 2.0 * np.abs(pushed[active]))
        found += [ActiveBound(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return tuple(sorted(found))
